#include "base/child.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <csignal>

#include "base/signal_fd.hpp"

namespace sluice::base {
namespace {

TEST(Capture, ReadsBothOutputsHoweverLong) {
  // Reading one after the other would block for ever once the second pipe is full.
  const Captured got = capture({"/bin/sh", "-c", "head -c 200000 /dev/zero >&2; echo out; exit 3"});
  EXPECT_EQ(got.exit_code, 3);
  EXPECT_EQ(got.out, "out\n");
  EXPECT_EQ(got.err.size(), 200000U);
}

TEST(Capture, SaysWhatCannotBeRun) {
  const Captured got = capture({"/no/such/program"});
  EXPECT_EQ(got.exit_code, 127);
  EXPECT_EQ(got.err, "/no/such/program cannot be run: No such file or directory\n");
}

TEST(Capture, ReplacesEnvironmentVariables) {
  setenv("SLUICE_TEST_VARIABLE", "old", 1);
  EXPECT_EQ(
      capture({"/bin/sh", "-c", "echo $SLUICE_TEST_VARIABLE"}, {"SLUICE_TEST_VARIABLE=new"}).out,
      "new\n");
  unsetenv("SLUICE_TEST_VARIABLE");
}

TEST(StartChild, ChildDoesNotInheritBlockedSignals) {
  // A worker that was started with SIGTERM blocked could not be asked to end.
  const SignalFd signals{SIGTERM};
  ChildOptions options;
  options.args = {"/bin/sh", "-c", "kill -TERM $$; exit 0"};
  int status = 0;
  ASSERT_GT(waitpid(start_child(options), &status, 0), 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(StartChild, ChildDiesWithItsParent) {
  // The grandchild prints its pid and would sleep; its parent, which started it, is SIGKILLed.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    ChildOptions options;
    options.args = {"/bin/sh", "-c", "echo up; exec sleep 60"};
    options.stdout_fd = ends[1];
    options.signal_when_we_die = SIGKILL;
    static_cast<void>(start_child(options));
    close(ends[0]);
    close(ends[1]);
    pause();
    _exit(0);
  }
  close(ends[1]);
  char text[8] = {};
  ASSERT_EQ(read(ends[0], text, sizeof(text)), 3);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // The pipe hangs up when the grandchild, the last one to hold it, is gone.
  pollfd hang_up{ends[0], 0, 0};
  EXPECT_EQ(poll(&hang_up, 1, 20'000), 1);
  close(ends[0]);
}

}  // namespace
}  // namespace sluice::base
