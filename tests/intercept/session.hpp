#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "shm/mapping.hpp"
#include "shm/view.hpp"
#include "tests/controller/support.hpp"
#include "tests/intercept/fakecuda/fakecuda.hpp"

/// What the interposer's tests share: a session with a real controller, in which the test program
/// itself is the client under test (the interposer is preloaded into it), and a second client that
/// stands for the critical process. A process attaches once, so each test needs its own process:
/// ctest sees to that.
namespace sluice::intercept::test {

using controller::test::Child;
using controller::test::eventually;

/// In ns.
inline constexpr std::uint64_t kMs = 1'000'000;

/// A client of higher priority on the same device, without a GPU.
class Critical {
 public:
  Critical(const std::string& session, int priority);
  ~Critical();
  Critical(const Critical&) = delete;
  Critical& operator=(const Critical&) = delete;

  void begin();
  void end();
  [[nodiscard]] int slot() const { return slot_; }

 private:
  int connection_ = -1;
  int slot_ = -1;
  shm::BoardMapping mapping_;
};

class Session : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Environment of this process, before its first driver call.
  void choose(const std::string& policy, int priority = 0);
  void start_controller();

  /// A kernel launch on the stream, as a program makes it.
  static CUresult launch(CUstream stream = nullptr);
  static CUresult kernel(std::uintptr_t function, CUstream stream = nullptr);
  static CUstream make_stream();

  /// Choose, start, attach by a first launch, and forget what that did.
  void attach(const std::string& policy, int priority = 0);
  /// From now on somebody outranks this client, so that it paces.
  Critical& outrank();

  /// Launches the kernel until it is known to take so long.
  void learn(std::uintptr_t function, float ms);

  /// The controller stands still, and this client may not find it silent; it is live.
  void stop_with_fresh_heartbeat();

  shm::Board& board();
  /// This process's slot.
  shm::Slot& slot();
  std::uint64_t counted(shm::Count count);
  /// All launches that this process's slot counts.
  std::uint64_t launches();

  /// Where the process's standard error goes from now on, and what came.
  void catch_errors();
  std::string errors() const;

  std::string session_;
  std::string directory_;
  std::unique_ptr<Child> controller_;
  std::optional<shm::BoardMapping> board_;
  std::unique_ptr<Critical> critical_;

 private:
  int slot_ = -1;
};

}  // namespace sluice::intercept::test
