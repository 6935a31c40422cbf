#include "tests/intercept/session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "sluice/sluice.h"

namespace sluice::intercept::test {

void Session::SetUp() {
  static bool used = false;
  if (used) GTEST_SKIP() << "one test per process: run these through ctest";
  used = true;
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
    const std::string log = sluice::test::read_file(own_session_.file("log"));
    std::fprintf(stderr, "--- log of the controller\n%s---\n", log.c_str());
  }
}

void Session::choose(const std::string& policy, int priority) {
  setenv("SLUICE_POLICY", policy.c_str(), 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);  // so that launches in many streams are measured
  setenv("SLUICE_GPU_TIME", "0", 0);  // its events would be among those that tests count
  setenv("SLUICE_PRIORITY", std::to_string(priority).c_str(), 1);
}

void Session::start_controller() { controller_ = sluice::test::start_controller(own_session_); }

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
  // A controller that a busy machine does not run for a second gets a second launch.
  const auto attached = [&] { return launch() == CUDA_SUCCESS && sluice_attached() == 1; };
  if (!eventually(attached) || ::cuStreamSynchronize(nullptr) != CUDA_SUCCESS) {
    throw std::runtime_error("the test program could not attach");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(25));  // from then on launches are measured
  fake::clear();
}

Critical& Session::outrank() {
  critical_ = std::make_unique<Critical>(session_, 200);
  EXPECT_TRUE(eventually([&] { return slot().outranked.load() == 1; }));
  return *critical_;
}

void Session::learn(std::uintptr_t function, float ms) {
  fake::set_elapsed_of(reinterpret_cast<CUfunction>(function), ms);
  ASSERT_TRUE(eventually([&] {
    const std::uint64_t unknown = slot().unknown_launches.load();
    kernel(function);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return slot().unknown_launches.load() == unknown;
  })) << "not learned";
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
  for (const auto& entry : slot().entries) sum += entry.value(count);
  return sum;
}

std::uint64_t Session::launches() {
  std::uint64_t sum = 0;
  for (const auto& entry : slot().entries) sum += entry.launches();
  return sum;
}

void Session::catch_errors() {
  const int file = open(own_session_.file("errors").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(file, STDERR_FILENO);
  close(file);
}

std::string Session::errors() const { return sluice::test::read_file(own_session_.file("errors")); }

}  // namespace sluice::intercept::test
