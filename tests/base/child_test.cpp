#include "base/child.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "base/signal_fd.hpp"
#include "tests/support/forked_child.hpp"

namespace sluice::base {
namespace {

TEST(Capture, ReadsBothOutputsHoweverLong) {
  // Reading one after the other would block indefinitely once the second pipe is full.
  const Captured got = capture({"/bin/sh", "-c", "head -c 200000 /dev/zero >&2; echo out; exit 3"});
  EXPECT_EQ(got.exit_code, 3);
  EXPECT_EQ(got.out, "out\n");
  EXPECT_EQ(got.err.size(), 200000U);
}

// Prevents: what a child writes is cut off where it closes one of its two outputs first.
TEST(Capture, ReadsOneOutputToItsEndAfterTheOtherHasEnded) {
  const Captured out = capture({"/bin/sh", "-c", "echo first; exec 2>&-; sleep 0.2; echo last"});
  EXPECT_EQ(out.out, "first\nlast\n");
  const Captured err =
      capture({"/bin/sh", "-c", "echo first >&2; exec >&-; sleep 0.2; echo last >&2"});
  EXPECT_EQ(err.err, "first\nlast\n");
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
  const Captured all = capture({"/usr/bin/env"}, {"SLUICE_TEST_VARIABLE=new"});
  EXPECT_EQ(all.out.find("SLUICE_TEST_VARIABLE=old"), std::string::npos) << all.out;
  unsetenv("SLUICE_TEST_VARIABLE");
}

// Prevents: a failed program looks like one that ended well, because whoever started us ignores the
// ends of its children.
TEST(Capture, KnowsTheExitCodeThoughSigchldIsIgnored) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(capture({"/bin/sh", "-c", "exit 3"}).exit_code, 3);
  signal(SIGCHLD, SIG_DFL);
}

// Prevents: an answer that is lost because our own output is closed, as in a process of cron.
TEST(Capture, ReadsTheOutputThoughOurOwnIsClosed) {
  test::ForkedChild closed([] {
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    return capture({"/bin/sh", "-c", "echo out"}).out == "out\n" ? 0 : 1;
  });
  EXPECT_EQ(closed.wait(), 0);
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

int g_forks = 0;

// Prevents: a server with gigabytes of memory stands still while it starts a trainer, because fork
// copies its page tables, and then its pages.
TEST(StartChild, CopiesNoMemory) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer makes a fork of it";
#endif
  pthread_atfork([] { ++g_forks; }, nullptr, nullptr);
  EXPECT_EQ(capture({"/bin/true"}).exit_code, 0);
  EXPECT_EQ(g_forks, 0);
}

/// Set in a child that shares our memory.
std::atomic<bool> g_handled_in_child{false};
pid_t g_parent = 0;

// Prevents: a handler of ours runs in a child, on our memory.
TEST(StartChild, NoHandlerOfOursRunsInTheChild) {
  test::ForkedChild parent([] {
    setpgid(0, 0);
    g_parent = getpid();
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (getpid() != g_parent) g_handled_in_child = true;
    };
    sigaction(SIGUSR1, &action, nullptr);
    std::jthread sender([](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        kill(0, SIGUSR1);  // to the group: the child is in it
        usleep(20);
      }
    });
    ChildOptions options;
    options.args = {"/bin/true"};
    for (int i = 0; i < 50; ++i) waitpid(start_child(options), nullptr, 0);
    return g_handled_in_child ? 1 : 0;
  });
  EXPECT_EQ(parent.wait(), 0);
}

// Prevents: a trainer keeps the port of the server that started it, and the connections of its
// clients, which then see no end.
TEST(StartChild, ChildInheritsNoOtherDescriptor) {
  const Fd leaks(dup(STDIN_FILENO));
  const Fd wanted(dup(STDIN_FILENO));
  ChildOptions options;
  options.args = {"/bin/sh", "-c",
                  "cd /proc/$$/fd && test ! -e " + std::to_string(leaks.get()) + " -a -e " +
                      std::to_string(wanted.get())};
  options.inherited_fd = wanted.get();
  int status = 0;
  ASSERT_GT(waitpid(start_child(options), &status, 0), 0);
  EXPECT_EQ(exit_code(status), 0);
  EXPECT_NE(fcntl(leaks.get(), F_GETFD), -1) << "ours stays open";
}

TEST(StartChild, ChildDiesWithItsParent) {
  // The grandchild prints a line and would sleep. Its parent, which started it, is killed.
  Pipe pipe;
  test::ForkedChild parent([&] {
    ChildOptions options;
    options.args = {"/bin/sh", "-c", "echo up; exec sleep 60"};
    options.stdout_fd = pipe.write.get();
    options.signal_when_we_die = SIGKILL;
    static_cast<void>(start_child(options));
    pipe.write.reset();
    return pause();
  });
  pipe.write.reset();
  char text[8] = {};
  ASSERT_EQ(read(pipe.read.get(), text, sizeof(text)), 3);
  parent.signal(SIGKILL);
  parent.wait();
  // The pipe hangs up when the grandchild, the last process that has it open, is gone.
  pollfd hang_up{pipe.read.get(), 0, 0};
  EXPECT_EQ(poll(&hang_up, 1, 20'000), 1);
}

TEST(StartChild, ReadsFromTheGivenDescriptorInTheGivenFolder) {
  Pipe in;
  Pipe out;
  ASSERT_EQ(write(in.write.get(), "pwd\n", 4), 4);
  in.write.reset();
  ChildOptions options;
  options.args = {"/bin/sh"};
  options.folder = "/";
  options.stdin_fd = in.read.get();
  options.stdout_fd = out.write.get();
  int status = 0;
  ASSERT_GT(waitpid(start_child(options), &status, 0), 0);
  char text[8] = {};
  EXPECT_EQ(read(out.read.get(), text, sizeof(text)), 2);
  EXPECT_STREQ(text, "/\n");
}

// Prevents: a signal to the group of a child fails, because the child has not run yet.
TEST(StartChild, AGroupOfItsOwnExistsAtOnce) {
  ChildOptions options;
  options.args = {"/bin/sleep", "60"};
  options.own_group = true;
  const pid_t child = start_child(options);
  EXPECT_EQ(getpgid(child), child);
  EXPECT_EQ(kill(-child, SIGKILL), 0);
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(exit_code(status), 128 + SIGKILL);
}

}  // namespace
}  // namespace sluice::base
