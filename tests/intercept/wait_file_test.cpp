// How long the program has waited for the GPU, in a file for measurements (SLUICE_WAITS).
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using base::monotonic_ns;
using fake::Id;

struct Counted {
  std::uint64_t ns = 0;
  std::uint64_t waits = 0;
};

class WaitFiles : public Session {
 protected:
  /// At priority 0 and under policy none: as a measurement runs programs that nothing holds.
  void begin() {
    std::filesystem::create_directory(folder_);
    setenv("SLUICE_WAITS", folder_.c_str(), 1);
    attach("none", 0);
  }

  [[nodiscard]] Counted counted() const {
    Counted found;
    std::ifstream file(folder_ + "/" + std::to_string(getpid()), std::ios::binary);
    EXPECT_TRUE(file.read(reinterpret_cast<char*>(&found), sizeof found));
    return found;
  }

  /// Lets `call`, which reaches the driver as `id`, wait for the GPU for at least `ns`.
  void expect_counted(Id id, const std::function<void()>& call, std::uint64_t ns = 100'000) {
    const Counted before = counted();
    fake::stall(id);
    const std::uint64_t asked = monotonic_ns();
    std::thread waiting(call);
    ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
    const std::uint64_t blocked = monotonic_ns();
    while (monotonic_ns() < blocked + ns) std::this_thread::yield();
    const std::uint64_t until = monotonic_ns();
    fake::unstall();
    waiting.join();
    const Counted after = counted();
    EXPECT_GE(after.ns - before.ns, until - blocked);
    EXPECT_LE(after.ns - before.ns, monotonic_ns() - asked);
    EXPECT_EQ(after.waits - before.waits, 1U);
  }

  std::string folder_ = own_session_.file("waits");
  std::uint64_t word_ = 0;
};

// Prevents: nothing is known of the waits without Sluice, with which those under it are compared.
TEST_F(WaitFiles, CountEachCallThatWaits) {
  begin();
  const CUstream stream = make_stream();
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  expect_counted(Id::cuCtxSynchronize, [] { cuCtxSynchronize(); });
  expect_counted(Id::cuStreamSynchronize, [&] { cuStreamSynchronize(stream); });
  expect_counted(Id::cuEventSynchronize, [&] { cuEventSynchronize(event); });
  expect_counted(Id::cuMemcpyDtoH_v2, [&] { cuMemcpyDtoH_v2(&word_, 0x1000, sizeof word_); });
  expect_counted(Id::cuMemcpyDtoHAsync_v2,
                 [&] { cuMemcpyDtoHAsync_v2(&word_, 0x1000, sizeof word_, stream); });
}

// Prevents: a program that asks again and again counts as one that waits.
TEST_F(WaitFiles, CountNoQueriesAndNoLaunches) {
  begin();
  const CUstream stream = make_stream();
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  const Counted before = counted();
  for (int i = 0; i < 100; ++i) {
    launch(stream);
    cuEventQuery(event);
    cuStreamQuery(stream);
  }
  EXPECT_EQ(counted().waits, before.waits);
  EXPECT_EQ(counted().ns, before.ns);
}

// Prevents: threads that wait for the same work count twice.
TEST_F(WaitFiles, OfTwoThreadsTheUnionCounts) {
  begin();
  const Counted before = counted();
  fake::stall(Id::cuCtxSynchronize);
  const std::uint64_t asked = monotonic_ns();
  std::thread first([] { cuCtxSynchronize(); });
  std::thread second([] { cuCtxSynchronize(); });
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 2; }));
  const std::uint64_t blocked = monotonic_ns();
  // Longer than all the rest, or twice this time would be within the bound.
  while (monotonic_ns() < blocked + 2 * (blocked - asked) + 10 * kMs) std::this_thread::yield();
  fake::unstall();
  first.join();
  second.join();
  EXPECT_LE(counted().ns - before.ns, monotonic_ns() - asked);
  EXPECT_EQ(counted().waits - before.waits, 2U);
}

// Prevents: a child that has no client writes into the figures of its parent, or waits for a lock
// that another thread had at the fork.
TEST_F(WaitFiles, AForkedChildWritesNothing) {
  begin();
  const Counted before = counted();
  const pid_t child = fork();
  if (child == 0) {
    cuCtxSynchronize();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(counted().waits, before.waits);
}

// Prevents: a folder that is not there ends the program, or nobody hears of it.
TEST_F(WaitFiles, RunOnWithoutTheirFolder) {
  setenv("SLUICE_WAITS", (folder_ + "/nowhere").c_str(), 1);
  catch_errors();
  attach("none", 0);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_NE(errors().find("waits are not counted: " + folder_), std::string::npos) << errors();
}

}  // namespace
}  // namespace sluice::intercept::test
