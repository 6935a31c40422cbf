// Counts the instructions of one launch with an open gate by single-stepping. Unlike a time, the
// count does not depend on the machine's load. It is printed, not asserted.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/child.hpp"
#include "intercept/driver/entries.hpp"
#include "tests/support/controller.hpp"

namespace {

using namespace sluice;

void launch() { ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); }

/// One launch between two breakpoints, after enough launches to be attached and warm.
int run_traced() {
  for (int i = 0; i < 100; ++i) launch();
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  raise(SIGSTOP);
  asm volatile("int3");
  launch();
  asm volatile("int3");
  return 0;
}

bool stopped_by(pid_t child, int signal) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}

/// Whether the next instruction is int3.
bool before_breakpoint(pid_t child) {
  user_regs_struct registers{};
  ptrace(PTRACE_GETREGS, child, nullptr, &registers);
  return (ptrace(PTRACE_PEEKTEXT, child, registers.rip, nullptr) & 0xff) == 0xcc;
}

int count_instructions(const char* label, const std::vector<std::string>& variables) {
  base::ChildOptions options;
  options.args = {"/proc/self/exe"};
  options.environment = variables;
  const pid_t child = base::start_child(options);
  // The child asks to be traced and then stops.
  if (!stopped_by(child, SIGSTOP)) {
    std::fprintf(stderr, "cannot trace (is ptrace allowed here?); not counted\n");
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return 0;
  }
  ptrace(PTRACE_CONT, child, nullptr, nullptr);
  if (!stopped_by(child, SIGTRAP)) return 1;
  int steps = 0;
  for (; !before_breakpoint(child); ++steps) {
    ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    if (!stopped_by(child, SIGTRAP)) return 1;
  }
  std::printf("%-28s %d instructions\n", label, steps);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace

int main() {
  if (std::getenv("SLUICE_TRACED") != nullptr) return run_traced();
  const test::Session session("bench");
  const auto controller = test::start_controller(session);
  const std::string preload = "LD_PRELOAD=" SLUICE_INTERCEPT_LIBRARY;
  std::printf("one cuLaunchKernel, including the call and the driver's own few instructions\n");
  return count_instructions("direct call", {"SLUICE_TRACED=1"}) |
         count_instructions("attached, open gate",
                            {"SLUICE_TRACED=1", preload, "SLUICE_POLICY=gate"});
}
