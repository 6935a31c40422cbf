#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "shm/mapping.hpp"
#include "shm/messages.hpp"
#include "shm/view.hpp"

/// What the controller's tests share: a session nobody else has, the real program in it, and
/// clients without a GPU.
namespace sluice::controller::test {

using namespace std::chrono_literals;

/// Generous: a loaded two-core machine must not fail a test. Times that matter are printed.
inline constexpr std::chrono::milliseconds kPatience = 10s;

/// Polls until `condition` holds; false if it never does.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds patience = kPatience);

/// A child process with a pipe to and from it. Killed and reaped with the object.
class Child {
 public:
  /// `log`: file for its stderr, or empty.
  explicit Child(const std::vector<std::string>& command, const std::string& log = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// SIGSTOP, and waits until it has stopped.
  void stop() const;
  /// Exit code, or 128 + signal. Kills it if it does not end.
  int wait();
  void write_line(const std::string& line) const;
  /// One line of its stdout; empty if it ended or says nothing for long.
  std::string read_line() const;

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
  base::Fd to_;
  base::Fd from_;
};

/// A fresh session in a runtime directory of its own. At its end nothing may be left of it.
class ControllerTest : public testing::Test {
 protected:
  /// `prefix`: of the names of the sessions, which tell whose they are.
  explicit ControllerTest(std::string prefix = "test") : prefix_(std::move(prefix)) {}

  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] std::string board_file() const;
  [[nodiscard]] std::string log() const;
  [[nodiscard]] std::string log_path() const { return directory_ + "/log"; }

  /// Starts sluice-controller and waits until it says ready.
  std::unique_ptr<Child> start_controller(const std::vector<std::string>& more = {});
  /// The same, without waiting.
  std::unique_ptr<Child> launch_controller(const std::vector<std::string>& more = {});

  std::string session_;
  std::string directory_;

 private:
  std::string prefix_;
  std::string old_runtime_dir_;
};

/// With a controller from begin to end, which must then leave by itself on SIGTERM.
class RunningControllerTest : public ControllerTest {
 protected:
  void SetUp() override {
    ControllerTest::SetUp();
    controller_ = start_controller();
  }
  void TearDown() override {
    controller_->signal(SIGTERM);
    EXPECT_EQ(controller_->wait(), 0);
    ControllerTest::TearDown();
  }

  std::unique_ptr<Child> controller_;
};

/// A fake_client process.
class Client {
 public:
  Client(const std::string& session, int priority, int device = 1);

  [[nodiscard]] bool attached() const { return slot_ >= 0; }
  [[nodiscard]] int slot() const { return slot_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }
  [[nodiscard]] std::uint64_t board_id() const { return board_id_; }
  /// What it said when it was refused.
  [[nodiscard]] const std::string& greeting() const { return greeting_; }
  /// Sends an order and waits until it is done.
  void order(const std::string& words);
  Child& process() { return *process_; }
  [[nodiscard]] pid_t pid() const { return process_->pid(); }

 private:
  std::unique_ptr<Child> process_;
  std::string greeting_;
  int slot_ = -1;
  std::uint32_t generation_ = 0;
  std::uint64_t board_id_ = 0;
};

/// The board as `status` sees it.
class Look {
 public:
  explicit Look(const std::string& session) : mapping_(shm::BoardMapping::inspect(session)) {}
  [[nodiscard]] const shm::Board& board() const { return mapping_.board(); }
  [[nodiscard]] const shm::Slot& slot(int index) const {
    return board().slots[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::uint64_t gate(int index) const { return slot(index).gate.load(); }
  [[nodiscard]] shm::SlotState state(int index) const {
    return shm::SlotInfo::unpack(slot(index).info.load()).state;
  }

 private:
  shm::BoardMapping mapping_;
};

/// From here on no client finds the controller silent, however late a loaded machine lets it run:
/// it is stopped, until SIGCONT, and its heartbeat does not grow old. For tests in which it has
/// nothing more to do.
void stop_with_fresh_heartbeat(const Child& controller, const std::string& session);

/// A bare connection to the session's controller.
base::Fd connect_to(const std::string& session);

/// A request that a controller accepts, for device UUID `device`.
shm::Request good_request(int priority = 0, int device = 1);

/// Asks on a new connection or an old one.
shm::Reply ask_controller(int fd, const shm::Request& request);

}  // namespace sluice::controller::test
