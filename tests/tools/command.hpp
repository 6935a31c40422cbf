#pragma once
#include <string>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/session.hpp"

/// Runs the built programs as a user does.
namespace sluice::test {

/// `sluice ARGS` of this build, to its end.
base::Captured sluice(std::vector<std::string> args);
/// The result without what the first controller of a session says in a container.
base::Captured without_container_line(base::Captured result);
/// The command line of `sluice ARGS`, for a Process.
std::vector<std::string> sluice_command(std::vector<std::string> args);

[[nodiscard]] int lines_in(const std::string& text);

/// A test of a command in a session, without what a user may have set for it.
class CommandTest : public SessionTest {
 protected:
  void SetUp() override;
  [[nodiscard]] std::string board_file() const { return own_session_.board_file(); }
  [[nodiscard]] pid_t controller_pid() const { return own_session_.controller_pid(); }
};

}  // namespace sluice::test
