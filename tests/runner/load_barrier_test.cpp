#include "runner/load_barrier.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <future>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::runner {
namespace {

std::atomic<int> g_signals{0};

/// Whether a thread of this process sleeps in the kernel.
bool sleeps(pid_t thread) {
  const std::string stat = test::read_file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat.at(name_end + 2) == 'S';
}

class LoadBarrier : public testing::Test {
 protected:
  LoadBarrier() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    runner_ = base::Fd(ends[0]);
    worker_ = base::Fd(ends[1]);
  }

  base::Fd runner_;
  base::Fd worker_;
};

TEST_F(LoadBarrier, TheWorkerGetsTheStartAfterItIsReady) {
  EXPECT_FALSE(worker_is_ready(runner_.get()));
  release_worker(runner_.get(), 4711);
  EXPECT_EQ(WorkerBarrier(worker_.get()).wait_for_start(), 4711U);
  EXPECT_TRUE(worker_is_ready(runner_.get()));
}

TEST_F(LoadBarrier, AWorkerWithoutARunnerFails) {
  runner_.reset();
  EXPECT_THROW(static_cast<void>(WorkerBarrier(worker_.get()).wait_for_start()), base::RunError);
}

// Prevents: a worker that ends because a library or a profiler of the model's uses a signal.
TEST_F(LoadBarrier, ASignalDoesNotEndTheWait) {
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = [](int) { g_signals.fetch_add(1); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  std::atomic<pid_t> thread{0};
  std::atomic<pthread_t> handle{};
  auto start = std::async(std::launch::async, [&] {
    handle.store(pthread_self());
    thread.store(gettid());
    return WorkerBarrier(worker_.get()).wait_for_start();
  });
  // "ready" is sent right before the wait, so a thread that sleeps after that is in the wait.
  ASSERT_TRUE(test::eventually([&] { return worker_is_ready(runner_.get()); }));
  ASSERT_TRUE(test::eventually([&] { return sleeps(thread.load()); }));
  pthread_kill(handle.load(), SIGUSR1);
  ASSERT_TRUE(test::eventually([] { return g_signals.load() == 1; }));
  release_worker(runner_.get(), 4711);
  EXPECT_EQ(start.get(), 4711U);
  sigaction(SIGUSR1, &old, nullptr);
}

}  // namespace
}  // namespace sluice::runner
