// Forked children, with and without exec.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

#include "shm/target.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/lifecycle.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;

// A child that kept the slot would count launches for its parent, and free the parent's slot at its
// exit.
TEST_F(Lifecycle, AForkedChildIsDetached) {
  choose("gate");
  start_controller();
  const auto before = open_files();
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  std::set<std::string> ours;
  for (const std::string& file : open_files()) {
    if (!before.contains(file)) ours.insert(file);
  }
  ASSERT_GE(ours.size(), 2U) << "socket and board";
  outrank().begin();  // a child that obeyed would be held
  const std::uint64_t counted_before = launches();
  const std::uint64_t job_before = slot().job.load();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int faults = 0;
    for (const std::string& file : open_files()) faults |= ours.contains(file) ? 1 : 0;
    faults += sluice_attached() == 0 ? 0 : 2;
    fake::clear();
    faults += launch() == CUDA_SUCCESS && fake::count(Id::cuLaunchKernel) == 1 ? 0 : 4;
    faults += sluice_job_begin(0) == 0 ? 0 : 8;
    sluice_job_end(1);
    CUstream stream = make_stream();
    ::cuStreamDestroy_v2(stream);
    ::cuCtxSynchronize();
    const std::filesystem::directory_iterator threads("/proc/self/task");
    faults += std::distance(begin(threads), end(threads)) == 1 ? 0 : 16;
    exit(faults);  // exit, not _exit: its handlers must leave the parent's slot alone
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0) << "a bit per fault, see the test";
  EXPECT_EQ(launches(), counted_before) << "the child counted for its parent";
  EXPECT_EQ(slot().job.load(), job_before);
  EXPECT_EQ(sluice_attached(), 1);
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).state, shm::SlotState::kLive);
}

// Prevents: the workers of a prefork server run ungated because the parent had called the driver
// once. Seen to fail when every child of a process with an interposer was detached.
TEST_F(Lifecycle, AChildOfAParentThatUsedNoGpuAttaches) {
  choose("gate", 5);
  start_controller();
  EXPECT_EQ(sluice_attached(), 0);
  EXPECT_NE(dlsym(dlopen("libcuda.so.1", RTLD_NOW), fake::kFutureLaunch), nullptr);
  CUcontext context = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);  // attaches nobody
  std::fflush(nullptr);
  std::array<int, 2> done{};
  ASSERT_EQ(pipe(done.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    int faults = launch() == CUDA_SUCCESS && sluice_attached() == 1 ? 0 : 1;
    ::cuStreamSynchronize(nullptr);
    faults += sluice_job_begin(0) != 0 ? 0 : 2;
    char byte = 0;
    faults += read(done[0], &byte, 1) == 1 ? 0 : 4;
    exit(faults);
  }
  const auto is_childs = [&](const shm::Slot& of) {
    return of.pid.load() == static_cast<std::uint32_t>(child) && shm::is_active(of.job.load());
  };
  EXPECT_TRUE(eventually([&] {
    const auto& slots = board().slots;
    return std::any_of(slots.begin(), slots.end(), is_childs);
  })) << "the child has a slot and a job";
  EXPECT_EQ(write(done[1], "x", 1), 1);
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0) << "a bit per fault, see the test";
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(sluice_attached(), 1) << "the parent attaches later";
  EXPECT_TRUE(eventually([&] { return std::popcount(used()) == 1; })) << "the child's was freed";
}

// Prevents: a prefork server says once what is good enough, and its workers run without a target.
TEST_F(Lifecycle, AChildKeepsTheTargetThatItsParentSet) {
  choose("gate", 5);
  start_controller();
  ASSERT_EQ(sluice_set_target("p99=7ms"), 1);
  std::array<int, 2> done{};
  ASSERT_EQ(pipe(done.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    launch();
    char byte = 0;
    exit(read(done[0], &byte, 1) == 1 ? 0 : 1);
  }
  const auto is_childs = [&](const shm::Slot& of) {
    return of.pid.load() == static_cast<std::uint32_t>(child) &&
           shm::SlotInfo::unpack(of.info.load()).state == shm::SlotState::kLive;
  };
  const shm::Slot* childs = nullptr;
  EXPECT_TRUE(eventually([&] {
    const auto& slots = board().slots;
    const auto* const found = std::find_if(slots.begin(), slots.end(), is_childs);
    childs = found == slots.end() ? nullptr : found;
    return childs != nullptr;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::uint64_t asked = childs == nullptr ? 0 : childs->requested_target.load();
  EXPECT_EQ(asked, shm::parse_target("p99=7ms")->pack());
  EXPECT_EQ(write(done[1], "x", 1), 1);
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0);
}

// Prevents: a forked child waits 5 s for the end of a query that a thread of its parent has made.
// Seen to fail without forget_queries_in_child().
TEST_F(Lifecycle, AForkedChildWaitsForNoQueryOfItsParent) {
  attach("gate", 5);
  CUstream stream = make_stream();
  fake::pause();
  fake::stall(Id::cuStreamQuery);
  launch(stream);
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; })) << "nobody polls";
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t begin = base::monotonic_ns();
    ::cuStreamDestroy_v2(stream);
    ::cuDevicePrimaryCtxReset_v2(0);  // waits for a query about any context
    _exit(base::monotonic_ns() - begin < 4000 * kMs ? 0 : 1);
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0) << "waited";
  fake::unstall();
}

// Prevents: a program closes all descriptors and opens its own files, and its forked child closes
// one of them.
TEST_F(Lifecycle, AForkedChildClosesNoFileThatHasTheBoardsNumber) {
  attach("gate");
  const int own = open(own_session_.file("own").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  int boards = -1;
  for (const std::string& number : open_files()) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + number, gone);
    if (target.string().starts_with("/dev/shm/sluice")) boards = std::stoi(number);
  }
  ASSERT_EQ(dup2(own, boards), boards);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(fcntl(boards, F_GETFD) == 0 ? 0 : 1);
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0) << "closed";
}

// Prevents: a child that pthread_atfork does not see ends the jobs of its parent, counts for it, or
// frees its slot at exit. Seen to fail with the flag of pthread_atfork alone.
TEST_F(Lifecycle, AChildOfABareForkLeavesTheParentsSlotAlone) {
  attach("gate");
  CUstream stream = make_stream();
  ASSERT_EQ(launch(stream), CUDA_SUCCESS);
  const std::uint64_t parents = sluice_job_begin(0);
  const std::uint64_t job_before = slot().job.load();
  const std::uint64_t counted_before = launches();
  std::fflush(nullptr);
  const auto child = static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) {
    int faults = sluice_attached() == 0 ? 0 : 1;
    sluice_job_end(parents);
    faults += sluice_job_begin(0) == 0 ? 0 : 2;
    faults += launch(make_stream()) == CUDA_SUCCESS ? 0 : 4;
    CUdeviceptr at = 0;
    faults += ::cuMemAlloc_v2(&at, 100) == CUDA_SUCCESS ? 0 : 8;
    ::cuStreamSynchronize(stream);
    ::cuStreamDestroy_v2(stream);
    exit(faults);
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0) << "a bit per fault, see the test";
  EXPECT_EQ(slot().job.load(), job_before);
  EXPECT_EQ(launches(), counted_before);
  EXPECT_EQ(slot().memory.held.load(), 0U);
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).state, shm::SlotState::kLive);
  sluice_job_end(parents);
}

// The child shares its parent's memory, so nothing there may say that it is a child.
TEST_F(Lifecycle, AVforkedChildDoesNothingForItsParent) {
  attach("gate");
  const std::uint64_t parents = sluice_job_begin(0);
  const std::uint64_t job_before = slot().job.load();
  const pid_t child = vfork();
  if (child == 0) {
    sluice_job_end(parents);
    _exit(sluice_attached());
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(slot().job.load(), job_before);
  EXPECT_EQ(sluice_attached(), 1);
  sluice_job_end(parents);
}

TEST_F(Lifecycle, AVforkedChildThatExecsLeavesTheParentAttached) {
  attach("gate");
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "true", nullptr);
    _exit(127);
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(sluice_attached(), 1);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::intercept::test
