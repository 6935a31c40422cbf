// Counts the instructions of launches with an open gate, of jobs, and of queries and records of
// events as allocators and NCCL make them, by single-stepping, and those of them that lock the bus
// or call the system, which are the dearest ones. Unlike a time, the counts do not depend on the
// machine's load. They are printed, not asserted.
#include <linux/futex.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "base/child.hpp"
#include "base/clock.hpp"
#include "intercept/driver/entries.hpp"
#include "tests/support/attached_client.hpp"
#include "tests/support/controller.hpp"

namespace {

using namespace sluice;

void launch() { ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); }

void query() { ::cuEventQuery(nullptr); }
void record() { ::cuEventRecord(nullptr, nullptr); }
void job() {
  launch();
  ::cuStreamSynchronize(nullptr);
}

/// So many launches are counted: with device:4, each fourth one puts a wait.
constexpr int kCounted = 8;

template <void (*call)()>
void call_counted() {
  asm volatile("int3");
#pragma GCC unroll 8  // the instructions of a loop would be counted too
  for (int i = 0; i < kCounted; ++i) call();
  asm volatile("int3");
}

/// The calls between two breakpoints, after enough launches to be attached, warm, and to have
/// learned their duration.
int run_traced() {
  for (int i = 0; i < 20'000; ++i) {
    launch();
    if (i % 1000 == 0) usleep(1000);  // durations are collected meanwhile
  }
  // Until one launch in thousands is drawn for the GPU time.
  constexpr std::uint64_t kLongNs = 400'000'000;
  for (const std::uint64_t begin = base::monotonic_ns(); base::monotonic_ns() - begin < kLongNs;) {
    for (int i = 0; i < 1000; ++i) launch();
  }
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  raise(SIGSTOP);
  const std::string traced = std::getenv("SLUICE_TRACED");
  traced == "query"    ? call_counted<query>()
  : traced == "job"    ? call_counted<job>()
  : traced == "record" ? call_counted<record>()
                       : call_counted<launch>();
  return 0;
}

bool stopped_by(pid_t child, int signal) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}

/// The first bytes of the next instruction.
std::array<unsigned char, 8> next_instruction(pid_t child) {
  user_regs_struct registers{};
  ptrace(PTRACE_GETREGS, child, nullptr, &registers);
  return std::bit_cast<std::array<unsigned char, 8>>(
      ptrace(PTRACE_PEEKTEXT, child, registers.rip, nullptr));
}

/// A lock prefix, or an exchange with memory, which needs none.
bool locks(const std::array<unsigned char, 8>& bytes) {
  constexpr unsigned char kLock = 0xf0;
  const std::size_t at = (bytes[0] & 0xf0U) == 0x40 ? 1 : 0;  // behind a REX prefix
  const bool exchange = (bytes[at] & 0xfeU) == 0x86 && bytes[at + 1] < 0xc0;
  return bytes[0] == kLock || exchange;
}

/// Without the wake of a thread that waits for a lock: stepping holds locks for long.
bool calls_system(pid_t child, const std::array<unsigned char, 8>& bytes) {
  if (bytes[0] != 0x0f || bytes[1] != 0x05) return false;
  user_regs_struct registers{};
  ptrace(PTRACE_GETREGS, child, nullptr, &registers);
  const bool wakes_one = registers.rax == SYS_futex && registers.rdx == 1 &&
                         (registers.rsi & FUTEX_CMD_MASK) == FUTEX_WAKE;
  return !wakes_one;
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
  constexpr unsigned char kBreakpoint = 0xcc;
  int steps = 0;
  int locked = 0;
  int system_calls = 0;
  for (auto next = next_instruction(child); next[0] != kBreakpoint;
       next = next_instruction(child)) {
    ++steps;
    locked += locks(next) ? 1 : 0;
    system_calls += calls_system(child, next) ? 1 : 0;
    ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    if (!stopped_by(child, SIGTRAP)) return 1;
  }
  const auto each = [](int count) { return static_cast<double>(count) / kCounted; };
  std::printf("%-28s %6.1f instructions, %4.2f of them locked, %4.2f system calls\n", label,
              each(steps), each(locked), each(system_calls));
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
  const auto count = [&](const char* label, const char* policy) {
    // Single-stepping is so slow that the estimate of the GPU time would measure a launch. The
    // instructions of the hot path are the same without it.
    return count_instructions(label, {"SLUICE_TRACED=1", "SLUICE_GPU_TIME=0", preload,
                                      std::string("SLUICE_POLICY=") + policy});
  };
  int failed = count_instructions("direct call", {"SLUICE_TRACED=1"});
  failed |= count("attached, open gate", "gate");
  const test::AttachedClient above(session.name(), 200);
  failed |= count("gate, outranked", "gate");
  failed |= count("device:4, outranked", "device:4");
  failed |= count("device:200us, outranked", "device:200us");
  const std::map<std::string, const char*> others = {
      {"query", "one cuEventQuery that finds nothing done"},
      {"record", "one cuEventRecord"},
      {"job", "one job of a launch and a cuStreamSynchronize"}};
  for (const auto& [call, what] : others) {
    std::printf("%s\n", what);
    failed |= count_instructions("direct call", {"SLUICE_TRACED=" + call});
    const auto count_event = [&](const char* label, const char* priority) {
      return count_instructions(label, {"SLUICE_TRACED=" + call, "SLUICE_GPU_TIME=0", preload,
                                        std::string("SLUICE_PRIORITY=") + priority});
    };
    failed |= count_event("best effort", "0");
    failed |= count_event("critical", "100");
  }
  return failed;
}
