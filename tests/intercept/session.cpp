#include "tests/intercept/session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "shm/messages.hpp"
#include "shm/session.hpp"
#include "sluice/sluice.h"

namespace sluice::intercept::test {

Critical::Critical(const std::string& session, int priority)
    : connection_(shm::connect_controller(shm::socket_path(session).c_str())),
      mapping_(shm::BoardMapping::attach(session)) {
  shm::Request request;
  request.priority = static_cast<std::uint32_t>(priority);
  request.device_uuid.fill(1);  // the fake driver's device 0
  shm::Reply reply;
  EXPECT_EQ(shm::ask(connection_, request, reply, 10'000), 0);
  EXPECT_EQ(reply.status, shm::ReplyStatus::kOk) << reply.text.data();
  slot_ = reply.slot;
  EXPECT_TRUE(mapping_.board().slots[static_cast<std::size_t>(slot_)].alive.take());
  shm::BoardView view(mapping_.board());
  EXPECT_TRUE(shm::go_live(view, slot_));
}

Critical::~Critical() {
  shm::BoardView view(mapping_.board());
  shm::leave(view, slot_);
  close(connection_);
}

void Critical::begin() {
  shm::BoardView view(mapping_.board());
  shm::begin_job(view, slot_);
}

void Critical::end() {
  shm::BoardView view(mapping_.board());
  shm::end_job(view, slot_);
}

void Session::SetUp() {
  static bool used = false;
  if (used) GTEST_SKIP() << "one test per process: run these through ctest";
  used = true;
  session_ = "hook-" + std::to_string(getpid());
  directory_ = std::filesystem::temp_directory_path() / ("sluice-" + session_);
  std::filesystem::create_directory(directory_);
  setenv("XDG_RUNTIME_DIR", directory_.c_str(), 1);
  setenv("SLUICE_SESSION", session_.c_str(), 1);
}

void Session::TearDown() {
  EXPECT_EQ(fake::uses_of_dead_events(), 0U);
  fake::resume();
  critical_.reset();
  board_.reset();  // or this process would count as a user of the board
  if (controller_ != nullptr) {
    controller_->signal(SIGCONT);
    controller_->signal(SIGTERM);
    controller_->wait();
  }
  if (HasFailure()) {
    std::ifstream log(directory_ + "/controller.log");
    std::cerr << "--- log of the controller\n" << log.rdbuf() << "---\n";
  }
  std::filesystem::remove_all(directory_);
  // The board goes with this process, the last client; where it never attached, it is gone.
}

void Session::choose(const std::string& policy, int priority) {
  setenv("SLUICE_POLICY", policy.c_str(), 1);
  setenv("SLUICE_PRIORITY", std::to_string(priority).c_str(), 1);
}

void Session::start_controller() {
  controller_ = std::make_unique<Child>(
      std::vector<std::string>{SLUICE_CONTROLLER_PROGRAM, "--session", session_},
      directory_ + "/controller.log");
  const bool there = eventually([&] {
    const int fd = shm::connect_controller(shm::socket_path(session_).c_str());
    if (fd >= 0) close(fd);
    return fd >= 0;
  });
  if (!there) throw std::runtime_error("the controller does not come up");
}

CUresult Session::launch(CUstream stream) { return kernel(0, stream); }

CUresult Session::kernel(std::uintptr_t function, CUstream stream) {
  return ::cuLaunchKernel(reinterpret_cast<CUfunction>(function), 1, 1, 1, 1, 1, 1, 0, stream,
                          nullptr, nullptr);
}

CUstream Session::make_stream() {
  CUstream stream = nullptr;
  EXPECT_EQ(::cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  return stream;
}

void Session::attach(const std::string& policy, int priority) {
  choose(policy, priority);
  start_controller();
  if (launch() != CUDA_SUCCESS || sluice_attached() != 1 ||
      ::cuStreamSynchronize(nullptr) != CUDA_SUCCESS) {
    throw std::runtime_error("the test program could not attach");
  }
  fake::clear();
}

Critical& Session::outrank() {
  critical_ = std::make_unique<Critical>(session_, 200);
  EXPECT_TRUE(eventually([&] { return slot().outranked.load() == 1; }));
  return *critical_;
}

void Session::learn(std::uintptr_t function, float ms) {
  fake::set_elapsed(ms);
  ASSERT_TRUE(eventually([&] {
    const std::uint64_t unknown = slot().unknown_launches.load();
    kernel(function);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return slot().unknown_launches.load() == unknown;
  })) << "not learned";
}

void Session::stop_with_fresh_heartbeat() {
  controller::test::stop_with_fresh_heartbeat(*controller_, session_);
  EXPECT_TRUE(eventually(
      [this] { return shm::SlotInfo::unpack(slot().info.load()).state == shm::SlotState::kLive; }));
}

shm::Board& Session::board() {
  if (!board_) board_ = shm::BoardMapping::attach(session_);
  return board_->board();
}

shm::Slot& Session::slot() {
  shm::Board& all = board();
  for (int i = 0; i < shm::kSlots && slot_ < 0; ++i) {
    const bool used = (all.used.load() & shm::bit(i)) != 0;
    const bool mine =
        all.slots[static_cast<std::size_t>(i)].pid.load() == static_cast<std::uint32_t>(getpid());
    if (used && mine && (critical_ == nullptr || critical_->slot() != i)) slot_ = i;
  }
  if (slot_ < 0) throw std::runtime_error("this process has no slot");
  return all.slots[static_cast<std::size_t>(slot_)];
}

std::uint64_t Session::counted(shm::Count count) {
  std::uint64_t sum = 0;
  for (const auto& entry : slot().entries) sum += entry[count].load();
  return sum;
}

std::uint64_t Session::launches() {
  std::uint64_t sum = 0;
  for (const auto& entry : slot().entries) sum += entry.launches();
  return sum;
}

void Session::catch_errors() {
  const int file = open((directory_ + "/errors").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(file, STDERR_FILENO);
  close(file);
}

std::string Session::errors() const {
  std::ostringstream text;
  text << std::ifstream(directory_ + "/errors").rdbuf();
  return text.str();
}

}  // namespace sluice::intercept::test
