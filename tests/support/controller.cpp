#include "tests/support/controller.hpp"

#include <cstdio>
#include <stdexcept>

#include "shm/mapping.hpp"

namespace sluice::test {

std::unique_ptr<Process> launch_controller(const Session& session,
                                           const std::vector<std::string>& more) {
  std::vector<std::string> command{SLUICE_CONTROLLER_PROGRAM, "--session", session.name(),
                                   "--log-level", "debug"};
  command.insert(command.end(), more.begin(), more.end());
  return std::make_unique<Process>(std::move(command), ProcessOptions{.err = session.file("log")});
}

std::unique_ptr<Process> start_controller(const Session& session,
                                          const std::vector<std::string>& more) {
  auto controller = launch_controller(session, more);
  const std::string ready =
      "ready: session=" + session.name() + " pid=" + std::to_string(controller->pid()) + " ";
  const auto log = [&] { return read_file(session.file("log")); };
  if (!eventually([&] { return log().find(ready) != std::string::npos; })) {
    throw std::runtime_error("the controller does not get ready:\n" + log());
  }
  return controller;
}

void ControllerTest::TearDown() {
  SessionTest::TearDown();
  if (HasFailure()) std::fprintf(stderr, "--- log of the controller\n%s---\n", log().c_str());
}

void RunningControllerTest::TearDown() {
  controller_->signal(SIGTERM);
  EXPECT_EQ(controller_->wait(), 0);
  ControllerTest::TearDown();
}

}  // namespace sluice::test
