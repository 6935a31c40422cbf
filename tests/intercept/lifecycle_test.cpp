// Fork, exec, exit, a missing or stopped controller, and bad settings.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <thread>

#include "shm/policy.hpp"
#include "shm/session.hpp"
#include "shm/target.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;

class Lifecycle : public Session {
 protected:
  /// A client process of the session: it attaches, reports that, and then executes commands.
  std::unique_ptr<Process> client() {
    auto child = std::make_unique<Process>(std::vector<std::string>{SLUICE_CLIENT_PROGRAM});
    EXPECT_EQ(child->read_line(), "attached");
    return child;
  }
  std::uint64_t used() { return board().used.load(); }
  static int status_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
};

std::set<std::string> open_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && !target.string().starts_with("/proc/")) names.insert(entry.path().filename());
  }
  return names;
}

std::ptrdiff_t sockets() {
  const std::set<std::string> files = open_files();
  return std::count_if(files.begin(), files.end(), [](const std::string& file) {
    struct stat about {};
    return fstat(std::stoi(file), &about) == 0 && S_ISSOCK(about.st_mode);
  });
}

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
  EXPECT_NE(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchGrid"), nullptr);
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
    _exit(base::monotonic_ns() - begin < 1000 * kMs ? 0 : 1);
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0) << "waited";
  fake::unstall();
}

// pthread_atfork does not see a bare fork; the exit of such a child must not free our slot.
TEST_F(Lifecycle, ABareForkThatExitsLeavesTheParentsSlotAlone) {
  attach("gate");
  std::fflush(nullptr);
  const auto child = static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) exit(0);
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).state, shm::SlotState::kLive);
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

TEST_F(Lifecycle, ExitGivesTheSlotBack) {
  choose("gate");
  start_controller();
  auto one = client();
  EXPECT_NE(used(), 0U);
  one->write_line("exit");
  EXPECT_EQ(one->wait(), 0);
  EXPECT_TRUE(eventually([&] { return used() == 0; }));
}

// The program after exec is another one: it must neither be held nor hold others because of the old
// one.
TEST_F(Lifecycle, ExecGivesTheSlotBackWhileTheProcessLives) {
  choose("gate", 5);
  start_controller();
  auto one = client();
  one->write_line("begin");
  EXPECT_EQ(one->read_line(), "ok");
  const Critical lower(session_, 0);
  const auto& gate = board().slots[static_cast<std::size_t>(lower.slot())].gate;
  EXPECT_TRUE(eventually([&] { return gate.load() != 0; }));
  one->write_line("exec");
  EXPECT_TRUE(eventually([&] { return gate.load() == 0; }));
  EXPECT_TRUE(eventually([&] { return (used() & ~shm::bit(lower.slot())) == 0; }));
  EXPECT_EQ(kill(one->pid(), 0), 0) << "the process itself goes on";
}

TEST_F(Lifecycle, AKilledClientGivesItsSlotBack) {
  choose("gate");
  start_controller();
  auto one = client();
  one->signal(SIGKILL);
  EXPECT_EQ(one->wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return used() == 0; }));
}

// Seen to fail, held for 10 s by max_hold, without the look at early_hold_until_ns in
// Holders::enforce_max_hold(), and when that word was written after the gates had closed.
TEST_F(Lifecycle, AnAnnouncerThatIsStoppedHoldsNobodyForLong) {
  attach("gate");
  choose("gate", 5);
  auto above = client();
  const auto held = [this] { return slot().gate.load() != 0; };
  ASSERT_TRUE(eventually([&] { return !held(); })) << "its launch at the start was a job";
  ASSERT_TRUE(eventually([&] {
    above->write_line("announce");
    above->read_line();
    const auto end = std::chrono::steady_clock::now() + 100ms;
    while (!held() && std::chrono::steady_clock::now() < end) continue;
    above->signal(SIGSTOP);
    std::this_thread::sleep_for(30ms);
    if (held()) return true;  // else it has called the job off
    above->signal(SIGCONT);
    return false;
  }));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return !held(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  above->signal(SIGCONT);
  above->write_line("begin");
  EXPECT_EQ(above->read_line(), "ok");
  EXPECT_TRUE(eventually(held)) << "its next job";
}

TEST_F(Lifecycle, TheLastClientRemovesWhatAKilledControllerLeft) {
  choose("gate");
  start_controller();
  auto one = client();
  controller_->signal(SIGKILL);
  controller_->wait();
  const std::string file = "/dev/shm/" + shm::board_name(session_);
  EXPECT_TRUE(std::filesystem::exists(file));
  one->write_line("exit");
  EXPECT_EQ(one->wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(shm::socket_path(session_)));
}

// Prevents: a gate that closes behind the back of exit(), in front of work that the program still
// waits for, because a thread attached while another one was at exit already.
TEST_F(Lifecycle, WhoAttachesDuringTheExitIsOpened) {
  choose("gate");
  start_controller();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    static std::thread launching;
    static std::function<shm::Slot&()> own;
    own = [this]() -> shm::Slot& { return slot(); };
    // Before the first driver call, so that it runs after the interposer's own handler.
    std::atexit([] {
      fake::unstall();
      launching.join();
      const auto state = shm::SlotInfo::unpack(own().info.load()).state;
      _exit(state == shm::SlotState::kLeaving ? 0 : 1);
    });
    fake::stall(Id::cuDeviceGetUuid_v2);  // in front of the request to the controller
    launching = std::thread([] { launch(); });
    if (!eventually([] { return fake::stalled_threads() == 1; })) _exit(2);
    exit(3);
  }
  EXPECT_EQ(WEXITSTATUS(status_of(child)), 0);
}

// exit() while another thread is held at the gate must end the process.
TEST_F(Lifecycle, AHeldClientCanExit) {
  choose("gate");
  start_controller();
  auto one = client();
  critical_ = std::make_unique<Critical>(session_, 200);
  critical_->begin();
  one->write_line("launch-and-exit");
  EXPECT_EQ(one->wait(), 0);
}

TEST_F(Lifecycle, LaunchesBeforeTheAttachAreCountedAsUnattached) {
  catch_errors();
  choose("gate");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(sluice_attached(), 0);
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "one warning: " << said;
  start_controller();
  std::uint64_t more = 0;
  EXPECT_TRUE(eventually([&] {
    launch();
    ++more;
    return sluice_attached() == 1;
  }));
  EXPECT_EQ(counted(Count::kBypassUnattached) + counted(Count::kGated), 3 + more);
  EXPECT_GE(counted(Count::kBypassUnattached), 3U);
}

// A stopped controller costs one bounded wait, not one for each launch.
TEST_F(Lifecycle, AStoppedControllerDelaysOneLaunchOnly) {
  choose("gate");
  start_controller();
  controller_->signal(SIGSTOP);
  int slow = 0;
  const auto end = std::chrono::steady_clock::now() + 3s;
  while (std::chrono::steady_clock::now() < end) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(launch(), CUDA_SUCCESS);
    slow += std::chrono::steady_clock::now() - begin > 500ms ? 1 : 0;
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(slow, 1);
  controller_->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return launch() == CUDA_SUCCESS && sluice_attached() == 1; }));
  EXPECT_TRUE(eventually([&] { return std::popcount(used()) == 1; })) << "a slot was lost";
  EXPECT_TRUE(eventually([] { return sockets() == 1; })) << "a connection was left open";
}

TEST_F(Lifecycle, AWorkEntryThatIsNotHookedIsShown) {
  attach("gate");
  EXPECT_NE(dlsym(dlopen(nullptr, RTLD_NOW), "cuLaunchKernel"), nullptr);
  EXPECT_EQ(slot().unhooked_lookups.load(), 0U) << "a hook is hooked";
  EXPECT_NE(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchGrid"), nullptr);
  EXPECT_EQ(slot().unhooked_lookups.load(), 1U);
  EXPECT_STREQ(slot().unhooked_name.data(), "cuLaunchGrid");
}

// Prevents: with one device attached, each launch on another device asks a silent controller again.
TEST_F(Lifecycle, AStoppedControllerDelaysOneLaunchOfASecondDeviceToo) {
  attach("gate");
  CUcontext other = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(other), CUDA_SUCCESS);
  CUstream there = make_stream();
  controller_->signal(SIGSTOP);
  launch(there);
  const auto files = [] {
    using Folder = std::filesystem::directory_iterator;
    return std::distance(Folder("/proc/self/fd"), Folder());
  };
  const auto before = files();
  const std::uint64_t start = base::monotonic_ns();
  for (int i = 0; i < 20; ++i) launch(there);
  EXPECT_LT(base::monotonic_ns() - start, 900'000'000U);
  EXPECT_EQ(files(), before);
  controller_->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] {
    launch(there);
    const auto& slots = board().slots;
    return std::any_of(slots.begin(), slots.end(), [this](const shm::Slot& second) {
      return &second != &slot() && second.entries[0].launches() != 0;
    });
  })) << "not attached once the controller runs again";
}

// Prevents: a program dies of SIGPIPE from our warning because nobody reads its stderr.
TEST_F(Lifecycle, AWarningThatNobodyReadsKillsNobody) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const int kept = dup(STDERR_FILENO);
  close(ends[0]);
  dup2(ends[1], STDERR_FILENO);
  launch();  // there is no controller, which is worth a warning
  dup2(kept, STDERR_FILENO);
}

// Prevents: the thread that opens gates sleeps in write(2) while a pipe is full.
TEST_F(Lifecycle, AFullPipeDoesNotStopTheWatcher) {
  attach("gate");
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_NONBLOCK), 0);
  const std::array<char, 4096> filling{};
  while (write(ends[1], filling.data(), filling.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  const int kept = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  outrank().begin();
  board().max_hold_ns.store(50 * kMs);
  EXPECT_TRUE(eventually([&] { return slot().max_hold_opened.load() == 1; })) << "a warning";
  const std::uint64_t beat = slot().watcher_beat_ns.load();
  EXPECT_TRUE(eventually([&] { return slot().watcher_beat_ns.load() > beat + 50 * kMs; }));
  EXPECT_EQ(slot().gate.load(), 0U);
  dup2(kept, STDERR_FILENO);
}

// Prevents: a program that closes every descriptor, like a daemon, makes the watcher spin, or loses
// the file that got our descriptor's number.
TEST_F(Lifecycle, AProgramThatClosesOurConnectionKeepsItsOwnFiles) {
  attach("gate");
  int ours = -1;
  for (int fd = 3; fd < 256; ++fd) {
    struct stat about {};
    if (fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode)) ours = fd;
  }
  ASSERT_GE(ours, 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ASSERT_EQ(dup2(ends[0], ours), ours);
  close(ends[1]);  // what has the number now looks hung up
  const auto log = [this] { return sluice::test::read_file(own_session_.file("log")); };
  EXPECT_TRUE(eventually([&] { return log().find("attached again") != std::string::npos; }));
  EXPECT_EQ(fcntl(ours, F_GETFD), 0) << "the program's own file was closed";
}

// Prevents: a program that is short of memory ends in its first launch, or each launch takes one of
// its descriptors and a slot of the session. Seen to fail: std::terminate() in three places.
TEST_F(Lifecycle, AProgramShortOfMemoryRunsOnUngated) {
  choose("gate");
  start_controller();
  for (int i = 0; i < 4000; ++i) ::cuCtxSynchronize();  // what the recording driver needs itself
  fake::clear();
  const auto before = open_files().size();
  static_cast<void>(board());
  std::fflush(nullptr);
  for (rlim_t room = 0; room < (4U << 20U); room += 128U << 10U) {
    const pid_t child = fork();
    if (child == 0) {
      rlimit whole{};
      getrlimit(RLIMIT_AS, &whole);
      const rlim_t used = 4096 * std::stoull(sluice::test::read_file("/proc/self/statm"));
      const rlimit little{used + room, whole.rlim_max};
      int faults = setrlimit(RLIMIT_AS, &little) == 0 ? 0 : 1;
      for (int i = 0; i < 100; ++i) faults |= launch() == CUDA_SUCCESS ? 0 : 2;
      setrlimit(RLIMIT_AS, &whole);
      faults |= open_files().size() <= before + 4 ? 0 : 4;
      _exit(faults);
    }
    EXPECT_EQ(status_of(child), 0) << "with " << room << " bytes; a bit per fault, or a signal";
  }
  EXPECT_TRUE(eventually([&] { return used() == 0; })) << "slots were lost";
}

// Prevents: the waits of a second device look at a file of the program, which has the number of the
// board's descriptor now. Seen to fail.
TEST_F(Lifecycle, AProgramThatClosesTheBoardsDescriptorKeepsItsOwnFileUnmapped) {
  attach("device:1");
  const std::string own = own_session_.file("own");
  const int file = open(own.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ftruncate(file, sizeof(shm::Board)), 0);
  int taken = 0;
  for (const std::string& number : open_files()) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + number, gone);
    if (target.string().starts_with("/dev/shm/sluice")) taken += dup2(file, std::stoi(number)) >= 0;
  }
  ASSERT_EQ(taken, 1);
  CUcontext other = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(other), CUDA_SUCCESS);
  launch();
  EXPECT_TRUE(eventually([&] { return std::popcount(used()) == 2; }));
  EXPECT_EQ(sluice::test::read_file("/proc/self/maps").find(own), std::string::npos);
}

// Prevents: what a program writes to its standard output, which it was started without, goes to the
// board. Seen to fail, with the descriptors open.
TEST_F(Lifecycle, AProgramWithoutStandardFilesWritesNothingToTheBoard) {
  choose("gate");
  start_controller();
  std::array<int, 3> kept{};
  for (int file = 0; file < 3; ++file) {
    kept.at(static_cast<std::size_t>(file)) = fcntl(file, F_DUPFD_CLOEXEC, 10);
    close(file);
  }
  launch();
  std::array<bool, 3> open{};
  for (int file = 0; file < 3; ++file) {
    open.at(static_cast<std::size_t>(file)) = fcntl(file, F_GETFD) >= 0;
    dup2(kept.at(static_cast<std::size_t>(file)), file);
  }
  EXPECT_EQ(open, (std::array<bool, 3>{}));
  EXPECT_EQ(sluice_attached(), 1);
}

// Prevents: the watcher closes a file of the program, which has the number of the connection to a
// controller that does not answer. Seen to fail.
TEST_F(Lifecycle, AProgramThatClosesAnUnansweredConnectionKeepsItsOwnFiles) {
  choose("gate");
  start_controller();
  controller_->signal(SIGSTOP);
  launch();
  int ours = -1;
  for (int fd = 3; fd < 256; ++fd) {
    struct stat about {};
    if (fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode)) ours = fd;
  }
  ASSERT_GE(ours, 0);
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(dup2(file, ours), ours);
  std::this_thread::sleep_for(1200ms);
  EXPECT_EQ(fcntl(ours, F_GETFD), 0) << "the program's own file was closed";
  controller_->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return launch() == CUDA_SUCCESS && sluice_attached() == 1; }));
}

// Prevents: a thread that is cancelled while it is held ends the program.
TEST_F(Lifecycle, ACancelledThreadIsCancelledAfterTheWait) {
  attach("sync:1");
  outrank();
  CUstream stream = make_stream();
  fake::pause();
  std::thread held([stream] {
    launch(stream);
    for (;;) pause();
  });
  ASSERT_TRUE(eventually([&] { return fake::outstanding(stream) == 1; }));
  pthread_cancel(held.native_handle());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake::resume();
  held.join();
}

TEST_F(Lifecycle, EachDeviceHasASlotOfItsOwn) {
  attach("gate");
  const std::uint64_t first = launches();
  CUcontext other = nullptr;
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  launch(make_stream());  // on the first device
  CUcontext old = nullptr;
  ::cuCtxGetCurrent(&old);
  ::cuCtxSetCurrent(other);
  CUstream there = make_stream();
  launch(there);
  ::cuCtxSetCurrent(old);
  launch(there);  // the stream's device counts, not the thread's
  EXPECT_EQ(std::popcount(used()), 2);
  EXPECT_EQ(launches(), first + 1) << "the first device's slot";
}

TEST_F(Lifecycle, BadVariablesAreNamedOnALineEachAndReplaced) {
  catch_errors();
  setenv("SLUICE_POLICY", "event:0", 1);
  setenv("SLUICE_PRIORITY", "300", 1);
  setenv("SLUICE_LOG", "loud", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
  for (const char* text : {"SLUICE_POLICY=event:0", "SLUICE_PRIORITY=300", "SLUICE_LOG=loud"}) {
    EXPECT_NE(said.find(text), std::string::npos) << text << " in " << said;
  }
  EXPECT_EQ(shm::Policy::unpack(slot().policy.load()), shm::kDefaultPolicy);
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).priority, 0);
  EXPECT_STREQ(slot().label.data(), "priority=default");
}

// Prevents: a program that nobody gave a priority and that looks like one that was meant to be best
// effort.
TEST_F(Lifecycle, AProgramWithoutAPriorityIsLabelled) {
  unsetenv("SLUICE_PRIORITY");
  setenv("SLUICE_LABEL", "team=vision", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_STREQ(slot().label.data(), "team=vision,priority=default");
  EXPECT_EQ(shm::SlotInfo::unpack(slot().info.load()).priority, 0);
}

TEST_F(Lifecycle, BadTargetsAndLabelsAreNamedAndLeftOut) {
  catch_errors();
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("SLUICE_TARGET", "50ms", 1);
  setenv("SLUICE_LABEL", "team", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  const std::string said = errors();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  for (const char* text : {"SLUICE_TARGET=50ms is no target", "SLUICE_LABEL: 'team' is not a"}) {
    EXPECT_NE(said.find(text), std::string::npos) << text << " in " << said;
  }
  EXPECT_EQ(slot().requested_target.load(), 0U);
  EXPECT_STREQ(slot().label.data(), "");
}

TEST_F(Lifecycle, TheSlotHasTheTargetAndTheLabels) {
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("SLUICE_TARGET", "p99=1.2x", 1);
  setenv("SLUICE_LABEL", "team=vision", 1);
  setenv("SLURM_JOB_ID", "4711", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(slot().requested_target.load(), shm::parse_target("p99=1.2x")->pack());
  EXPECT_STREQ(slot().label.data(), "team=vision,job=4711");
}

// The namespace is in a file of the pod: tests/python/test_cdi.py.
TEST_F(Lifecycle, APodIsALabelInKubernetesOnly) {
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("SLUICE_LABEL", "team=vision", 1);
  setenv("HOSTNAME", "train-0", 1);
  setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_STREQ(slot().label.data(), "team=vision,pod=train-0");
}

TEST_F(Lifecycle, AHostNameAloneIsNoLabel) {
  setenv("SLUICE_PRIORITY", "0", 1);
  setenv("HOSTNAME", "train-0", 1);
  start_controller();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_STREQ(slot().label.data(), "");
}

TEST_F(Lifecycle, LogOffIsSilent) {
  catch_errors();
  setenv("SLUICE_LOG", "off", 1);
  setenv("SLUICE_POLICY", "fast", 1);
  setenv("SLUICE_SESSION", "no session name", 1);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(errors(), "");
}

}  // namespace
}  // namespace sluice::intercept::test
