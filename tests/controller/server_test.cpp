// The connections of a controller, without a controller.
#include "controller/server.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "controller/listener.hpp"
#include "tests/support/requests.hpp"
#include "tests/support/session.hpp"

namespace sluice::test {
namespace {

/// Gives a slot to everybody who asks.
class Handler : public controller::RequestHandler {
 public:
  shm::Reply answer(controller::Connection& from, const shm::Request&) override {
    from.slots = 1;
    shm::Reply reply;
    reply.status = shm::ReplyStatus::kOk;
    return reply;
  }
  void report(const controller::Connection& /*from*/, const shm::Report& /*report*/) override {}
  void hung_up(const controller::Connection& gone) override {
    (gone.slots == 0 ? others_lost : clients_lost) += 1;
  }

  int clients_lost = 0;
  int others_lost = 0;
};

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  /// Connects and lets the server accept.
  base::Fd connect() {
    base::Fd fd = connect_to(session_.name());
    server_.serve();
    return fd;
  }
  /// Sends a request that the server answers.
  void ask(const base::Fd& fd) {
    const shm::Request request = good_request();
    ASSERT_EQ(send(fd.get(), &request, sizeof(request), 0), static_cast<ssize_t>(sizeof(request)));
    server_.serve();
  }

  Session session_;
  controller::Listener listener_{session_.name()};
  Handler handler_;
  controller::Tally tally_;
  controller::Server server_{listener_.fd(), handler_, tally_};
};

// Prevents: a program that finds the socket before it listens is refused, and runs ungated.
TEST(Listener, WhoFindsTheNameIsNotRefused) {
  const Session session;
  controller::Listener listener(session.name());
  std::atomic<bool> ends{false};
  std::thread programs([&] {
    while (!ends) {
      const base::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      listener.path().copy(address.sun_path, sizeof(address.sun_path) - 1);
      const auto* const to = reinterpret_cast<const sockaddr*>(&address);
      const bool refused = connect(fd.get(), to, sizeof(address)) != 0 && errno == ECONNREFUSED;
      EXPECT_FALSE(refused);
    }
  });
  std::vector<base::Fd> before;  // A program may have found one of these.
  for (int i = 0; i < 500; ++i) {
    std::filesystem::remove(listener.path());
    before.push_back(listener.restore());
  }
  ends = true;
  programs.join();
}

// Prevents: one program with too many connections takes the slots of clients away.
TEST_F(ServerTest, OfTooManyConnectionsAClientKeepsItsOwn) {
  const base::Fd client = connect();
  ask(client);
  std::vector<base::Fd> others;
  for (int i = 0; i < 256; ++i) others.push_back(connect());
  EXPECT_EQ(handler_.clients_lost, 0);
  EXPECT_EQ(handler_.others_lost, 1);
}

// Prevents: a controller that was out of descriptors for a moment never accepts anybody again.
TEST_F(ServerTest, ItAcceptsAgainAfterItRanOutOfDescriptors) {
  const base::Fd waiting = connect_to(session_.name());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{static_cast<rlim_t>(waiting.get()) + 1, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  server_.serve();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_FALSE(server_.expects_request()) << "it was accepted without a descriptor";
  server_.serve();
  EXPECT_FALSE(server_.expects_request()) << "it tries again at once: the loop spins";
  server_.drop_silent(base::monotonic_ns());  // as on every heartbeat
  server_.serve();
  EXPECT_TRUE(server_.expects_request());
}

// Prevents: connections that never ask use up the descriptors.
TEST_F(ServerTest, OnlyAConnectionThatNeverAskedIsDropped) {
  const base::Fd client = connect();
  ask(client);
  const base::Fd silent = connect();
  server_.drop_silent(base::monotonic_ns() + 4'000'000'000);
  EXPECT_EQ(handler_.others_lost, 0);
  server_.drop_silent(base::monotonic_ns() + 6'000'000'000);
  EXPECT_EQ(handler_.others_lost, 1);
  EXPECT_EQ(handler_.clients_lost, 0);
}

}  // namespace
}  // namespace sluice::test
