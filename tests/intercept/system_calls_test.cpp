// What a program pays in system calls and in waking threads of ours.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/intercept/session.hpp"

namespace {
std::atomic<int> g_asked{0};
}  // namespace

/// Whether this is a forked child: the interposer asks here.
extern "C" __attribute__((visibility("default"))) pid_t getpid() noexcept {
  ++g_asked;
  return static_cast<pid_t>(syscall(SYS_getpid));
}

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

using SystemCalls = Session;

/// How often the thread of this process with this name has gone to sleep.
std::uint64_t sleeps_of(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name != thread) continue;
    std::ifstream status(task.path() / "status");
    const std::string key = "voluntary_ctxt_switches:";
    for (std::string word; status >> word;) {
      if (word != key) continue;
      std::uint64_t count = 0;
      status >> count;
      return count;
    }
  }
  return 0;
}

// Prevents: each job of a critical program wakes the poller, and then waits for the lock that the
// poller has taken.
TEST_F(SystemCalls, ShortJobsFindThePollerAwake) {
  attach("gate", 5);
  CUstream stream = make_stream();
  std::uint64_t before = 0;
  ASSERT_TRUE(eventually([&before] { return (before = sleeps_of("sluice-poll")) != 0; }));
  constexpr std::uint64_t kJobs = 1000;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kJobs; ++i) {
    launch(stream);
    ASSERT_EQ(::cuStreamSynchronize(stream), CUDA_SUCCESS);
    std::this_thread::sleep_for(100us);
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  const auto ms = static_cast<std::uint64_t>(took / 1ms);
  EXPECT_LT(sleeps_of("sluice-poll") - before, kJobs / 2 + ms) << "it looks once in a ms";
}

// A thread remembers 16 streams. Prevents: each launch of a program with more asks twice whether it
// runs in a forked child, which is most of what the launch costs.
TEST_F(SystemCalls, ALaunchIntoOneOfManyStreamsMakesOne) {
  attach("gate");
  std::vector<CUstream> streams(64);
  for (CUstream& stream : streams) launch(stream = make_stream());
  g_asked.store(0);
  for (CUstream stream : streams) launch(stream);
  EXPECT_LT(g_asked.load(), 80);
}

// Prevents: each copy and each wait of a program whose waits nobody counts asks whether it runs in
// a forked child.
TEST_F(SystemCalls, WaitsThatNobodyCountsMakeNone) {
  attach("gate");
  CUstream stream = make_stream();
  CUevent event = nullptr;
  ASSERT_EQ(::cuEventCreate(&event, 0), CUDA_SUCCESS);
  g_asked.store(0);
  for (int i = 0; i < 50; ++i) {
    ::cuMemcpyAsync(0x1000, 0x2000, 8, stream);
    ::cuEventSynchronize(event);
  }
  EXPECT_LT(g_asked.load(), 20);
}

TEST_F(SystemCalls, AnAllocationMakesOneAndItsEndToo) {
  attach("gate");
  g_asked.store(0);
  for (int i = 0; i < 50; ++i) {
    CUdeviceptr at = 0;
    ASSERT_EQ(::cuMemAlloc_v2(&at, 8), CUDA_SUCCESS);
    ASSERT_EQ(::cuMemFree_v2(at), CUDA_SUCCESS);
  }
  EXPECT_LT(g_asked.load(), 120);
}

}  // namespace
}  // namespace sluice::intercept::test
