// Messages that no client of ours would send.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "shm/gates.hpp"
#include "shm/session.hpp"
#include "shm/target.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

using shm::ReplyStatus;

class Wire : public RunningControllerTest {
 protected:
  /// Sends bytes on a new connection. Returns the reply's status, or nothing after a hang-up.
  std::optional<ReplyStatus> send_bytes(const std::vector<unsigned char>& bytes) {
    const base::Fd connection = connect_to(session_);
    send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    pollfd ready{connection.get(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, static_cast<int>(kPatience.count())), 1);
    shm::Reply reply;
    if (recv(connection.get(), &reply, sizeof(reply), 0) != sizeof(reply)) return std::nullopt;
    return reply.status;
  }
};

std::vector<unsigned char> bytes_of(const shm::Request& request, std::size_t size) {
  std::vector<unsigned char> bytes(size);
  std::memcpy(bytes.data(), &request, std::min(size, sizeof(request)));
  return bytes;
}

// Prevents: a message is read past its end, or a library of another build gets a misleading error.
TEST_F(Wire, WrongSizesAndVersionsAreNamed) {
  const shm::Request good = good_request();
  for (const std::size_t size : {1U, 4U, 96U, 160U, 271U, 273U, 60000U}) {
    EXPECT_EQ(send_bytes(bytes_of(good, size)), ReplyStatus::kBadRequest) << size;
  }
  EXPECT_EQ(send_bytes({}), std::nullopt) << "an empty message is a hang-up";
  shm::Request other = good;
  other.version = shm::kWireVersion + 1;
  for (const std::size_t size : {96U, 160U, 272U}) {
    EXPECT_EQ(send_bytes(bytes_of(other, size)), ReplyStatus::kWrongVersion) << size;
  }
}

// Prevents: a value out of range reaches the board.
TEST_F(Wire, ValuesOutOfRangeAreRefused) {
  const base::Fd connection = connect_to(session_);
  const auto status_of = [&](auto change) {
    shm::Request wrong = good_request();
    change(wrong);
    return ask_controller(connection.get(), wrong).status;
  };
  EXPECT_EQ(status_of([](auto& r) { r.priority = 256; }), ReplyStatus::kBadRequest);
  EXPECT_EQ(status_of([](auto& r) { r.slot = 63; }), ReplyStatus::kBadRequest);
  EXPECT_EQ(status_of([](auto& r) { r.slot = -2; }), ReplyStatus::kBadRequest);
  EXPECT_EQ(status_of([](auto& r) { r.policy = ~std::uint64_t{0}; }), ReplyStatus::kBadRequest);
  EXPECT_EQ(status_of([](auto& r) { r.policy = std::uint64_t{2} << 32U; }),
            ReplyStatus::kBadRequest)
      << "sync:0";
  EXPECT_EQ(status_of([](auto& r) { r.target = ~std::uint64_t{0}; }), ReplyStatus::kBadRequest)
      << "only a change may keep the target";
  const std::uint64_t good = shm::Target{990, shm::Target::Unit::kNanoseconds, 5}.pack();
  EXPECT_EQ(status_of([&](auto& r) { r.target = good | (std::uint64_t{1} << 59U); }),
            ReplyStatus::kBadRequest)
      << "a bit that no target has";
  EXPECT_EQ(status_of([](auto& r) { std::strcpy(r.label.data(), "a=\"b"); }),
            ReplyStatus::kBadRequest);
  EXPECT_EQ(status_of([](auto& r) { r.label.fill('x'); }), ReplyStatus::kBadRequest);
  EXPECT_EQ(status_of([](auto& r) { r.kind = static_cast<shm::RequestKind>(77); }),
            ReplyStatus::kBadRequest);
  EXPECT_EQ(Look(session_).board().used.load(), 0U);
}

// Prevents: a sequence of bytes kills the controller or damages the board.
TEST_F(Wire, GarbageHarmsNobody) {
  const FakeClient bystander(session_, 0);
  const Look look(session_);
  std::mt19937 random(20261120);
  for (int round = 0; round < 500; ++round) {
    std::vector<unsigned char> bytes = bytes_of(good_request(), sizeof(shm::Request));
    if (round % 3 == 0) bytes.resize(1 + random() % 300);
    const std::size_t changes = 1 + random() % 20;
    // The first 4 bytes, the version, stay valid, so that most rounds pass the check of the
    // version.
    for (std::size_t i = 0; i < changes && bytes.size() > 4; ++i) {
      bytes[4 + random() % (bytes.size() - 4)] = static_cast<unsigned char>(random());
    }
    send_bytes(bytes);
  }
  EXPECT_EQ(look.state(bystander.slot()), shm::SlotState::kLive);
  EXPECT_TRUE(eventually([&] { return look.board().used.load() == shm::bit(bystander.slot()); }));
  EXPECT_EQ(ask_controller(connect_to(session_).get(), good_request()).status, ReplyStatus::kOk);
}

// Prevents: peers that never read, never ask or never close stop the heartbeat or block other
// clients.
TEST_F(Wire, SlowPeersStopNobody) {
  const Look look(session_);
  const base::Fd deaf = connect_to(session_);
  shm::Request request = good_request();
  request.priority = 999;
  for (int i = 0; i < 5000; ++i) {
    send(deaf.get(), &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  std::vector<base::Fd> mute;
  while (mute.size() < 400) {  // more than the controller keeps
    base::Fd fd(shm::connect_controller(shm::socket_path(session_).c_str()));
    if (fd) mute.push_back(std::move(fd));  // otherwise the queue of the socket is full
  }
  const std::uint64_t beat = look.board().heartbeat_ns.load();
  EXPECT_TRUE(eventually(
      [&] { return look.board().heartbeat_ns.load() > beat + 5 * shm::kHeartbeatPeriodNs; }));
  EXPECT_EQ(ask_controller(connect_to(session_).get(), good_request()).status, ReplyStatus::kOk);
}

}  // namespace
}  // namespace sluice::test
