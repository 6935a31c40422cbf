// Jobs that are over before a thread of ours has woken up: they must not pay for that thread.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

using ShortJobs = Session;

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
TEST_F(ShortJobs, FindThePollerAwake) {
  attach("gate", 5);
  CUstream stream = make_stream();
  const std::uint64_t before = sleeps_of("sluice-poll");
  ASSERT_NE(before, 0U);
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

}  // namespace
}  // namespace sluice::intercept::test
