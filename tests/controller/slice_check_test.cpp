// A controller has an unused GPU tried once, ends the trial when somebody comes, and leaves no
// process behind. A shell script takes the place of the trial.
#include "controller/slice_check.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/processes.hpp"
#include "shm/slice_answer.hpp"
#include "tests/support/board_test.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::controller::test {
namespace {

using sluice::test::eventually;
using Kind = shm::SliceAnswer::Kind;

constexpr const char* kAnswer =
    R"({"driver": "simulated", "slices": "obeyed", "short_ms": 0.26, "driver_ms": 1.2})";
constexpr const char* kNotObeyed =
    R"({"driver": "simulated", "slices": "not obeyed", "short_ms": 1.2, "driver_ms": 1.2})";

class SliceChecks : public sluice::test::BoardTest {
 protected:
  SliceChecks() {
    auto& uuid = board_->devices[0].uuid;
    std::copy(base::kSimulatedUuid.begin(), base::kSimulatedUuid.end(), uuid.begin());
    file_ = "slices-" + base::format_uuid(uuid) + ".json";
  }

  /// `script` runs with the device's UUID as $1. Ten quiet seconds pass in half a second, and the
  /// longest trial takes 4.5 s.
  void start(const std::string& script, CheckSlices when = CheckSlices::kAlways) {
    const std::string trial = folder_.write("trial", "echo $$ $* >> " + started() + "\n" + script);
    check_ = std::make_unique<SliceCheck>(*board_, tally_,
                                          SliceCheckOptions{.when = when,
                                                            .session = session_,
                                                            .folder = folder_.path() / "cache",
                                                            .command = {"/bin/sh", trial},
                                                            .speed = 20});
  }

  [[nodiscard]] std::string started() const { return folder_.file("started"); }
  [[nodiscard]] bool has_started() const { return !sluice::test::read_file(started()).empty(); }
  [[nodiscard]] pid_t group() const {
    pid_t pid = 0;
    std::ifstream(started()) >> pid;
    return pid;
  }
  /// Of the trial's processes. Those that nobody has reaped yet do not count.
  [[nodiscard]] bool all_are_gone() const {
    const pid_t trial = group();
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      const std::string stat = pid > 0 ? base::read_proc(pid, "stat", 512) : std::string();
      std::istringstream fields(stat.substr(stat.rfind(')') + 1));
      char state = 0;
      pid_t parent = 0;
      pid_t its_group = 0;
      if (fields >> state >> parent >> its_group && its_group == trial && state != 'Z')
        return false;
    }
    return true;
  }
  [[nodiscard]] shm::SliceAnswer answer() const {
    return shm::SliceAnswer::unpack(board_->slice_answers[0].load());
  }
  [[nodiscard]] std::string recorded() const {
    return sluice::test::read_file(folder_.path() / "cache" / file_);
  }
  /// Before the rule ends a trial that takes too long.
  [[nodiscard]] bool ends_soon() const {
    return eventually([&] { return all_are_gone(); }, std::chrono::seconds(3));
  }
  /// Long enough for a trial to begin.
  static void wait() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

  sluice::test::TempFolder folder_;
  std::string file_;
  std::string session_ = "test-" + std::to_string(getpid()) + "-slices";
  Tally tally_;
  std::unique_ptr<SliceCheck> check_;
};

TEST_F(SliceChecks, ShowAndRecordTheAnswer) {
  start("sleep 0.3\nnice > " + folder_.file("nice") + "\necho '" + kAnswer + "'");
  EXPECT_TRUE(eventually([&] { return answer() == shm::SliceAnswer{Kind::kObeyed, 260}; }));
  EXPECT_TRUE(eventually([&] { return recorded() == std::string(kAnswer) + "\n"; }));
  EXPECT_NE(sluice::test::read_file(started()).find(base::format_uuid(board_->devices[0].uuid) +
                                                    " --gpu sim\n"),
            std::string::npos);
  EXPECT_EQ(sluice::test::read_file(folder_.file("nice")), "10\n");
  EXPECT_EQ(board_->slice_answers[1].load(), 0) << "there is no second device";
}

TEST_F(SliceChecks, TryNothingThatIsRecorded) {
  std::filesystem::create_directory(folder_.path() / "cache");
  static_cast<void>(folder_.write("cache/" + file_, kNotObeyed));
  start("");
  EXPECT_TRUE(eventually([&] { return answer().kind == Kind::kNotObeyed; }));
  wait();
  EXPECT_FALSE(has_started());
  // As `sluice doctor --slices` does.
  static_cast<void>(folder_.write("cache/" + file_, kAnswer));
  EXPECT_TRUE(eventually([&] { return answer().kind == Kind::kObeyed; }));
}

TEST_F(SliceChecks, TryOnceWithoutAFolderToWriteTo) {
  static_cast<void>(folder_.write("cache", "no folder"));
  start(std::string("echo '") + kAnswer + "'");
  EXPECT_TRUE(eventually([&] { return answer().kind == Kind::kObeyed; }));
}

TEST_F(SliceChecks, DoNotBeginByThemselvesOnASimulatedGpu) {
  start("", CheckSlices::kAuto);
  wait();
  EXPECT_FALSE(has_started());
  check_.reset();
  start("", CheckSlices::kNever);
  wait();
  EXPECT_FALSE(has_started());
}

TEST_F(SliceChecks, DoNotBeginNextToAnMpsDaemon) {
  static_cast<void>(folder_.write("control", ""));
  setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.path().c_str(), 1);
  start("");
  wait();
  EXPECT_FALSE(has_started());
  std::filesystem::remove(folder_.file("control"));
  EXPECT_TRUE(eventually([&] { return has_started(); }));
  check_.reset();
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

TEST_F(SliceChecks, DoNotBeginWhileThereIsAClient) {
  add_client(2, 1, "serve");
  start("");
  wait();
  EXPECT_FALSE(has_started());
  slot(2).info.store(0);
  EXPECT_TRUE(eventually([&] { return has_started(); }));
}

/// By this the simulated GPU knows who uses it.
struct UseOfASimulatedGpu {
  explicit UseOfASimulatedGpu(const std::string& session)
      : file(memfd_create(base::simulated_gpu_file(session, getpid()).c_str(), MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(file.get(), 4096), 0);
    memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
  }
  ~UseOfASimulatedGpu() { munmap(memory, 4096); }
  base::Fd file;
  void* memory;
};

TEST_F(SliceChecks, DoNotBeginWhileAProgramOutsideUsesTheGpu) {
  {
    const UseOfASimulatedGpu outside(session_);
    start("");
    wait();
    EXPECT_FALSE(has_started());
  }
  EXPECT_TRUE(eventually([&] { return has_started(); }));
}

TEST_F(SliceChecks, AreEndedWhenAProgramOutsideComes) {
  start("sleep 100");
  ASSERT_TRUE(eventually([&] { return has_started(); }));
  const UseOfASimulatedGpu outside(session_);
  EXPECT_TRUE(ends_soon());
}

TEST_F(SliceChecks, AreNotEndedForTheirOwnPrograms) {
  const std::string program = folder_.write("program.py", R"(
import mmap, os, sys, time
fd = os.memfd_create(f"sluice-simgpu.{sys.argv[1]}.{os.getpid()}")
os.ftruncate(fd, 4096)
used = mmap.mmap(fd, 4096)
time.sleep(100)
)");
  start("python3 " + program + " " + session_ + " &\nsleep 1\necho '" + kAnswer + "'");
  EXPECT_TRUE(eventually([&] { return answer().kind == Kind::kObeyed; }));
  EXPECT_TRUE(ends_soon());
}

TEST_F(SliceChecks, HaveNoAnswerFromATrialThatSaysNothing) {
  start("exit 3");
  EXPECT_TRUE(eventually([&] { return has_started(); }));
  wait();
  EXPECT_EQ(answer().kind, Kind::kNone);
  EXPECT_TRUE(all_are_gone());
}

// The programs of the trial are in its group. Each has to end at once.
constexpr const char* kHangs = "sleep 100 &\nsleep 100";

TEST_F(SliceChecks, AreEndedWhenAClientAttaches) {
  start(kHangs);
  ASSERT_TRUE(eventually([&] { return has_started(); }));
  tally_.attached.fetch_add(1);
  EXPECT_TRUE(ends_soon());
  EXPECT_EQ(answer().kind, Kind::kNone);
}

TEST_F(SliceChecks, AreEndedWhenAClientComes) {
  start(kHangs);
  ASSERT_TRUE(eventually([&] { return has_started(); }));
  add_client(2, 1, "serve");
  EXPECT_TRUE(ends_soon());
}

TEST_F(SliceChecks, AreEndedWithTheController) {
  start(kHangs);
  ASSERT_TRUE(eventually([&] { return has_started(); }));
  check_.reset();
  EXPECT_TRUE(ends_soon());
}

// Prevents: a client that worked until the last moment makes a wrong answer.
TEST_F(SliceChecks, HaveNoAnswerIfAClientCameBeforeItsEnd) {
  start("while [ ! -e " + folder_.file("go") + " ]; do sleep 0.01; done\necho '" + kNotObeyed +
        "'");
  ASSERT_TRUE(eventually([&] { return has_started(); }));
  add_client(2, 1, "serve");
  static_cast<void>(folder_.write("go", ""));
  EXPECT_TRUE(ends_soon());
  wait();
  EXPECT_EQ(answer().kind, Kind::kNone);
  EXPECT_EQ(recorded(), "");
}

// Prevents: a program that loads its model, and has not launched yet, finds too little memory.
TEST_F(SliceChecks, KnowWhoHasADevice) {
  EXPECT_FALSE(SliceCheck::in_use(*board_, 0));
  add_client(2, 0, "train");
  EXPECT_TRUE(SliceCheck::in_use(*board_, 0)) << "also if it does nothing";
  EXPECT_FALSE(SliceCheck::in_use(*board_, 1));
  set_state(2, shm::SlotState::kReserved, 0);
  EXPECT_TRUE(SliceCheck::in_use(*board_, 0)) << "it starts";
  board_->slots[2].info.store(0);
  EXPECT_FALSE(SliceCheck::in_use(*board_, 0));
}

}  // namespace
}  // namespace sluice::controller::test
