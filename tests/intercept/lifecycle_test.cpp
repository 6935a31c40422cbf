// Exit, exec, death, a missing or stopped controller, and programs that close our files.
#include "tests/intercept/lifecycle.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <thread>

#include "shm/session.hpp"
#include "sluice/sluice.h"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;

// A client process of the session: it attaches, reports that, and then executes commands.
std::unique_ptr<Process> client() {
  auto child = std::make_unique<Process>(std::vector<std::string>{SLUICE_CLIENT_PROGRAM});
  EXPECT_EQ(child->read_line(), "attached");
  return child;
}

std::ptrdiff_t sockets() {
  const std::set<std::string> files = open_files();
  return std::count_if(files.begin(), files.end(), [](const std::string& file) {
    struct stat about {};
    return fstat(std::stoi(file), &about) == 0 && S_ISSOCK(about.st_mode);
  });
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
  const auto end = std::chrono::steady_clock::now() + 5s;
  while (std::chrono::steady_clock::now() < end) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(launch(), CUDA_SUCCESS);
    slow += std::chrono::steady_clock::now() - begin > 500ms ? 1 : 0;
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GE(slow, 1);
  EXPECT_LE(slow, 3) << "of five that wait, or what a busy machine delays";
  controller_->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return launch() == CUDA_SUCCESS && sluice_attached() == 1; }));
  EXPECT_TRUE(eventually([&] { return std::popcount(used()) == 1; })) << "a slot was lost";
  EXPECT_TRUE(eventually([] { return sockets() == 1; })) << "a connection was left open";
}

TEST_F(Lifecycle, AWorkEntryThatIsNotHookedIsShown) {
  attach("gate");
  EXPECT_NE(dlsym(dlopen(nullptr, RTLD_NOW), "cuLaunchKernel"), nullptr);
  EXPECT_EQ(slot().unhooked_lookups.load(), 0U) << "a hook is hooked";
  EXPECT_NE(dlsym(dlopen("libcuda.so.1", RTLD_NOW), fake::kFutureLaunch), nullptr);
  EXPECT_EQ(slot().unhooked_lookups.load(), 1U);
  EXPECT_STREQ(slot().unhooked_name.data(), fake::kFutureLaunch);
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
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_NONBLOCK), 0);
  const std::array<char, 4096> filling{};
  while (write(ends[1], filling.data(), filling.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  const int kept = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  attach("gate");
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

// Prevents: "no controller" where the program has no descriptor left.
TEST_F(Lifecycle, AProgramWithoutDescriptorsIsToldSoAndAttachesLater) {
  choose("gate");
  start_controller();
  catch_errors();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int lowest_free = dup(STDERR_FILENO);
  close(lowest_free);
  const rlimit none{static_cast<rlim_t>(lowest_free), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(errors().find("no file descriptor left (ulimit -n); running ungated"),
            std::string::npos)
      << errors();
  EXPECT_TRUE(eventually([&] { return launch() == CUDA_SUCCESS && sluice_attached() == 1; }));
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

}  // namespace
}  // namespace sluice::intercept::test
