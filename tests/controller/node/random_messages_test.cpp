// Messages of every kind and size, from users without rights, with right and wrong contents.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/child.hpp"
#include "base/node_service.hpp"
#include "shm/gates.hpp"
#include "shm/give.hpp"
#include "shm/messages.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

using shm::RequestKind;

/// What a message must have right to concern a client.
struct Ids {
  std::uint64_t board_id = 0;
  std::int32_t slot = -1;
  std::uint32_t generation = 0;
};

/// Sends messages, and takes the replies. The same seed gives the same messages, except for the ids
/// of its own slots.
class Sender {
 public:
  Sender(unsigned seed, const Ids& victim) : random_(seed), victim_(victim) {}

  /// Up to 20 messages over one connection. Whether the service has taken them all, or has closed
  /// the connection.
  bool use_a_connection() {
    const base::Fd fd(shm::connect_patiently(base::node_socket().c_str(), 10'000));
    if (!fd) return false;
    own_ = {};
    const std::vector<int> files{pipe_.write.get(), memory_.get(), fd.get()};
    for (unsigned count = 1 + below(20); count > 0; --count) {
      const std::vector<unsigned char> bytes = message();
      const std::vector<int> enclosed(files.begin(), files.begin() + below(4));
      if (!send_with(fd.get(), bytes.data(), bytes.size(), enclosed)) break;
      if (one_in(3)) take_reply(fd.get(), 20);  // else several are under way at one time
    }
    shutdown(fd.get(), SHUT_WR);
    while (take_reply(fd.get(), 10'000)) continue;
    pollfd ready{fd.get(), POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  }

 private:
  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }
  bool one_in(unsigned count) { return below(count) == 0; }

  /// One of these values, or in one of four cases any.
  template <class Value>
  Value choose(std::initializer_list<Value> likely) {
    if (one_in(4)) return static_cast<Value>(std::uint64_t{random_()} << 32U | random_());
    return *(likely.begin() + below(static_cast<unsigned>(likely.size())));
  }

  /// False at the end of the connection, and if no reply came.
  bool take_reply(int fd, int timeout_ms) {
    pollfd ready{fd, POLLIN, 0};
    shm::Reply reply;
    if (poll(&ready, 1, timeout_ms) != 1) return false;
    // Enclosed descriptors are closed, because there is no room for one.
    if (recv(fd, &reply, sizeof(reply), 0) != static_cast<ssize_t>(sizeof(reply))) return false;
    if (reply.status == shm::ReplyStatus::kOk && reply.slot >= 0) {
      own_ = {reply.board_id, reply.slot, reply.generation};
    }
    return true;
  }

  Ids ids() {
    if (one_in(2)) return one_in(2) ? victim_ : own_;
    return {choose({victim_.board_id, std::uint64_t{0}}), choose({-1, 0, victim_.slot, 62, 63}),
            choose({victim_.generation, 0U, victim_.generation + 1})};
  }

  template <class Message>
  std::vector<unsigned char> bytes_of(const Message& message) {
    std::vector<unsigned char> bytes(sizeof(message));
    std::memcpy(bytes.data(), &message, sizeof(message));
    return bytes;
  }

  std::vector<unsigned char> request(RequestKind kind) {
    shm::Request request = good_request(0, static_cast<int>(1 + below(3)));
    const Ids of = one_in(2) && kind == RequestKind::kAttach ? Ids{} : ids();
    request.kind = kind;
    request.board_id = of.board_id;
    request.slot = of.slot;
    request.generation = of.generation;
    request.priority = choose({0U, 10U, 200U, shm::kKeepPriority});
    request.policy = choose({request.policy, shm::kKeepPolicy});
    request.target = choose({std::uint64_t{0}, shm::kKeepTarget});
    request.slice = choose({0U, 100U, 5U, shm::kKeepSlice});
    request.weight = choose({0U, 3U, 1001U, shm::kKeepWeight});
    request.give = choose({shm::kKeepGive, shm::say_give(25), shm::say_give(501)});
    if (one_in(8)) std::generate(request.name.begin(), request.name.end(), std::ref(random_));
    if (one_in(8)) std::generate(request.label.begin(), request.label.end(), std::ref(random_));
    return bytes_of(request);
  }

  std::vector<unsigned char> report() {
    shm::Report report;
    const Ids of = ids();
    report.slot = of.slot;
    report.generation = of.generation;
    report.state =
        choose({shm::SlotState::kLive, shm::SlotState::kLeaving, shm::SlotState::kReserved});
    report.refuses = below(2);
    report.job = choose({std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}});
    report.policy = choose({good_request().policy});
    report.done = choose({std::uint64_t{0}});
    if (one_in(2)) std::generate(report.words.begin(), report.words.end(), std::ref(random_));
    if (one_in(2)) std::generate(report.waived.begin(), report.waived.end(), std::ref(random_));
    return bytes_of(report);
  }

  std::vector<unsigned char> message() {
    const auto kind = static_cast<RequestKind>(
        choose({1U, 2U, 3U, 4U, 5U, static_cast<unsigned>(RequestKind::kReport)}));
    std::vector<unsigned char> bytes = kind == RequestKind::kReport ? report() : request(kind);
    // The version, in front, stays right more often than the rest.
    const unsigned first = one_in(8) ? 0 : sizeof(shm::Request::version);
    for (unsigned count = one_in(2) ? 1 + below(8) : 0; count > 0; --count) {
      bytes[first + below(static_cast<unsigned>(bytes.size()) - first)] =
          static_cast<unsigned char>(random_());
    }
    if (one_in(8)) bytes.resize(below(4097), static_cast<unsigned char>(random_()));
    return bytes;
  }

  std::mt19937 random_;
  Ids victim_;
  Ids own_;
  base::Pipe pipe_;
  base::Fd memory_{memfd_create("sluice-node-board", MFD_CLOEXEC)};
};

/// The lines of a log that do not begin as the service begins them.
std::string odd_lines(const std::string& log) {
  std::istringstream lines(log);
  std::string odd;
  for (std::string line; std::getline(lines, line);) {
    const bool dated = line.size() > 24 && line.substr(0, 2) == "20" && line[10] == ' ';
    const bool plain =
        std::all_of(line.begin(), line.end(), [](unsigned char c) { return c >= ' '; });
    if (!plain || (!dated && line.find("sluice node ready: ") != 0)) odd += line + '\n';
  }
  return odd;
}

/// What others may not change of a client.
auto lasting(const Look& look, int index) {
  const shm::Slot& slot = look.slot(index);
  return std::tuple(slot.info.load(), slot.policy.load(), slot.requested_policy.load(),
                    slot.requested_target.load(), slot.uid.load(), slot.pid.load(),
                    std::string(slot.name.data()));
}

class RandomMessages : public UsersTest {};

// Prevents: a message kills the service, changes another user's client, or costs the service a
// descriptor; or messages fill its log, or forge its lines.
TEST_F(RandomMessages, OfOthersChangeNothing) {
  constexpr int kConnections = 1000;  // of each user
  start(R"({"rules": [{"user": 12345, "max_priority": 10}]})");
  const auto bystander = client_of(kBert, 0);
  ASSERT_TRUE(bystander->attached());
  const int slot = bystander->slot();
  const Look look("node");
  ASSERT_TRUE(eventually([&] { return look.state(slot) == shm::SlotState::kLive; }));
  const auto before = lasting(look, slot);
  const std::size_t files = open_files(service().pid());
  const Ids victim{bystander->board_id(), slot, bystander->generation()};
  for (const uid_t uid : {kAnna, kCarl}) {  // who can write to the board, and who cannot
    const int unanswered = run_as(uid, [&] {
      Sender sender(20261123 + uid, victim);
      for (int i = 0; i < kConnections; ++i) {
        if (!sender.use_a_connection()) return 1;
      }
      return 0;
    });
    EXPECT_EQ(unanswered, 0) << "uid " << uid;
  }
  EXPECT_FALSE(service().ended());
  EXPECT_TRUE(eventually([&] { return look.board().used.load() == shm::bit(slot); }));
  EXPECT_EQ(lasting(look, slot), before);
  EXPECT_TRUE(eventually([&] { return open_files(service().pid()) <= files + 1; }))
      << files << " before, " << open_files(service().pid()) << " now";
  EXPECT_LE(count_of(log(), "warning: "), 40U) << "a message is a line";
  EXPECT_EQ(odd_lines(log()), "");
  const auto holder = client_of(kAnna, 10);
  ASSERT_TRUE(holder->attached()) << holder->greeting();
  holder->order("begin");
  EXPECT_EQ(look.gate(slot), shm::bit(holder->slot()));
  holder->order("end");
  EXPECT_EQ(look.gate(slot), 0U);
}

}  // namespace
}  // namespace sluice::test
