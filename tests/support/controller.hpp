#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/session.hpp"

namespace sluice::test {

/// Starts sluice-controller in the session with these options. Its log goes to the session's file
/// "log", at level debug.
[[nodiscard]] std::unique_ptr<Process> launch_controller(const Session& session,
                                                         const std::vector<std::string>& more = {});
/// The same, and waits until the controller is ready. Throws if it does not get ready.
[[nodiscard]] std::unique_ptr<Process> start_controller(const Session& session,
                                                        const std::vector<std::string>& more = {});

/// A test that starts and ends controllers.
class ControllerTest : public SessionTest {
 protected:
  using SessionTest::SessionTest;
  void TearDown() override;

  [[nodiscard]] std::string board_file() const { return own_session_.board_file(); }
  /// What the controllers of this session have written.
  [[nodiscard]] std::string log() const { return read_file(log_path()); }
  [[nodiscard]] std::string log_path() const { return own_session_.file("log"); }

  [[nodiscard]] std::unique_ptr<Process> start_controller(
      const std::vector<std::string>& more = {}) const {
    return test::start_controller(own_session_, more);
  }
  [[nodiscard]] std::unique_ptr<Process> launch_controller(
      const std::vector<std::string>& more = {}) const {
    return test::launch_controller(own_session_, more);
  }
};

/// A test with a running controller, which must exit on SIGTERM at the end.
class RunningControllerTest : public ControllerTest {
 protected:
  void SetUp() override { controller_ = start_controller(); }
  void TearDown() override;

  std::unique_ptr<Process> controller_;
};

}  // namespace sluice::test
