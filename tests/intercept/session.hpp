#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "shm/mapping.hpp"
#include "shm/view.hpp"
#include "tests/support/attached_client.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/standins/fakecuda/fakecuda.hpp"

/// What the interposer's tests share: a session with a real controller. The test program itself is
/// the client under test, because the interposer is preloaded into it. A second client stands for
/// the critical process. A process attaches once, so ctest runs each test in its own process.
namespace sluice::intercept::test {

using sluice::test::eventually;
using sluice::test::Process;
/// A second client on the fake driver's device 0.
using Critical = sluice::test::AttachedClient;

/// In ns.
inline constexpr std::uint64_t kMs = 1'000'000;

class Session : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Sets this process's environment, before its first driver call.
  void choose(const std::string& policy, int priority = 0);
  void start_controller();

  /// A kernel launch on the stream, as a program makes it.
  static CUresult launch(CUstream stream = nullptr);
  static CUresult kernel(std::uintptr_t function, CUstream stream = nullptr);
  static CUstream make_stream();

  /// Chooses a policy, starts the controller, attaches by a first launch, and clears the recording.
  void attach(const std::string& policy, int priority = 0);
  /// From now on a critical client outranks this one, so that it paces.
  Critical& outrank();

  /// Launches the kernel until this duration is known.
  void learn(std::uintptr_t function, float ms);

  shm::Board& board();
  /// This process's slot.
  shm::Slot& slot();
  std::uint64_t counted(shm::Count count);
  /// All launches that the slot counts.
  std::uint64_t launches();

  /// Catches the process's standard error from now on; errors() is what came.
  void catch_errors();
  std::string errors() const;

  const sluice::test::Session own_session_{"hook"};
  const std::string& session_ = own_session_.name();
  std::unique_ptr<Process> controller_;
  std::optional<shm::BoardMapping> board_;
  std::unique_ptr<Critical> critical_;

 private:
  int slot_ = -1;
};

}  // namespace sluice::intercept::test
