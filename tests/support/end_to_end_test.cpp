#include "tests/support/end_to_end_test.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

double time_factor() {
  const char* text = std::getenv("SLUICE_TEST_TIME_FACTOR");
  const double factor = text == nullptr ? 1 : std::strtod(text, nullptr);
  return factor > 0 ? factor : 1;
}

/// The GPU process of a session, which has the path of its socket in its command line. A zombie has
/// no command line.
pid_t gpu_process(const std::string& session) {
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string name;
    std::string argument;
    std::getline(file, name, '\0');
    std::getline(file, argument, '\0');
    if (name == "sluice-simgpu" && argument.ends_with("/" + session + ".simgpu")) return pid;
  }
  return 0;
}

}  // namespace

void EndToEndTest::SetUp() {
  signal(SIGPIPE, SIG_IGN);  // a program that dies before its command fails its test, not all tests
  // Other programs on the machine must not disturb the measured times. All children inherit this.
  setpriority(PRIO_PROCESS, 0, -10);
}

void EndToEndTest::TearDown() {
  if (HasFailure()) {
    for (const auto& program : programs_) {
      std::fprintf(stderr, "--- pid %d said\n%s", program->pid(), program->said().c_str());
    }
  } else {
    end_all();
  }
  programs_.clear();
  controller_.reset();
  end_gpu();
  EXPECT_EQ(left_over(), std::vector<std::string>());
  ControllerTest::TearDown();
}

std::vector<std::string> EndToEndTest::left_over() const {
  std::vector<std::string> found = files_of_session(session_);
  if (const pid_t gpu = gpu_process(session_)) found.push_back("process " + std::to_string(gpu));
  return found;
}

void EndToEndTest::start_controller(const std::vector<std::string>& more) {
  controller_.reset();
  controller_ = ControllerTest::start_controller(more);
}

void EndToEndTest::kill_controller() {
  controller_->signal(SIGKILL);
  controller_->wait();
}

Program& EndToEndTest::start_unattached(const ProgramOptions& options) {
  const std::string name = "program." + std::to_string(programs_.size());
  programs_.push_back(std::make_unique<Program>(own_session_, name, options));
  return *programs_.back();
}

Program& EndToEndTest::start(const ProgramOptions& options) {
  Program& program = start_unattached(options);
  EXPECT_EQ(program.ask("attach"), "1") << program.said();
  return program;
}

Program& EndToEndTest::start_looping(const std::string& policy) {
  Program& program = start_unattached({0, policy});
  program.ask("loop 1 100 64");
  EXPECT_TRUE(eventually([&] { return state_of(program) == shm::SlotState::kLive; }));
  return program;
}

void EndToEndTest::end_all() {
  for (const auto& program : programs_) {
    if (program->ended()) continue;
    program->signal(SIGCONT);
    program->tell("exit");
    EXPECT_EQ(program->wait(), 0) << program->said();
  }
  if (controller_ == nullptr || controller_->ended()) return;
  controller_->signal(SIGCONT);
  controller_->signal(SIGTERM);
  EXPECT_EQ(controller_->wait(), 0);
}

bool EndToEndTest::end_gpu() {
  if (on_real_gpu()) return false;
  const pid_t gpu = gpu_process(session_);
  if (gpu != 0) kill(gpu, SIGTERM);
  return eventually([&] { return gpu_process(session_) == 0; });
}

bool EndToEndTest::on_real_gpu() { return std::getenv("SLUICE_TEST_LIBCUDA_DIR") != nullptr; }

int EndToEndTest::slot_of(const Look& look, pid_t pid) {
  for (int slot = 0; slot < shm::kSlots; ++slot) {
    const bool used = look.state(slot) != shm::SlotState::kFree;
    if (used && look.slot(slot).pid.load() == static_cast<std::uint32_t>(pid)) return slot;
  }
  return -1;
}

int EndToEndTest::slot_of(const Program& program) const { return slot_of(look(), program.pid()); }

std::uint64_t EndToEndTest::gate_of(const Program& program) const {
  const Look now = look();
  const int slot = slot_of(now, program.pid());
  return slot < 0 ? 0 : now.gate(slot);
}

shm::SlotState EndToEndTest::state_of(const Program& program) const {
  const Look now = look();
  const int slot = slot_of(now, program.pid());
  return slot < 0 ? shm::SlotState::kFree : now.state(slot);
}

std::uint64_t EndToEndTest::counted(const Program& program, shm::Count count) const {
  const Look now = look();
  const int slot = slot_of(now, program.pid());
  std::uint64_t sum = 0;
  if (slot < 0) return sum;
  for (const shm::EntryCounters& entry : now.slot(slot).entries) sum += entry.value(count);
  return sum;
}

bool EndToEndTest::becomes_held(const Program& program) const {
  constexpr auto kQuiet = 60ms;
  if (!eventually([&] { return gate_of(program) != 0; })) return false;
  return eventually([&] {
    const std::uint64_t before = program.done();
    std::this_thread::sleep_for(kQuiet);
    return program.done() == before;
  });
}

bool EndToEndTest::flows(const Program& program) {
  const std::uint64_t before = program.done();
  return eventually([&] { return program.done() > before + 4; });
}

double EndToEndTest::ms_until_flow(const Program& program, const std::function<void()>& act) const {
  // What the interposer counts of the time between two ticks, and how much longer it may take on a
  // host that lets its thread wait.
  constexpr double kMostOfATickMs = 40;
  constexpr double kLatest = 5;
  const Look now = look();
  const auto& beat = now.slot(slot_of(now, program.pid())).watcher_beat_ns;
  const std::uint64_t before = program.done();
  act();
  const Stopwatch watch;
  std::uint64_t last_ns = beat.load();
  double ticks_ms = 0;
  const bool flowed = eventually([&] {
    const std::uint64_t beat_ns = beat.load();
    ticks_ms += std::min(static_cast<double>(beat_ns - last_ns) / 1e6, kMostOfATickMs);
    last_ns = beat_ns;
    return program.done() != before;
  });
  return flowed ? std::max(std::min(ticks_ms, watch.ms()), watch.ms() / kLatest) : -1;
}

void EndToEndTest::kill_program(const Program& program) const {
  const Look now = look();
  const shm::Slot& slot = now.slot(slot_of(now, program.pid()));
  program.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return !slot.alive.held(); }));
}

void EndToEndTest::expect_within(const std::string& what, double ms, double bound_ms) {
  const double bound = bound_ms * time_factor();
  std::printf("[  TIMED   ] %s: %.1f ms (at most %.0f)\n", what.c_str(), ms, bound);
  EXPECT_GE(ms, 0) << what << ": never";
  EXPECT_LE(ms, bound) << what;
}

}  // namespace sluice::test
