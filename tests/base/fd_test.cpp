#include "base/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/forked_child.hpp"

namespace sluice::base {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }
int open_null() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// Prevents: a descriptor that leaks at each reconnect, or one that is closed under its new owner.
TEST(Fd, AssignmentClosesWhatItReplaces) {
  const int first = open_null();
  const int second = open_null();
  {
    Fd fd(first);
    fd = Fd(second);
    EXPECT_FALSE(is_open(first));
    EXPECT_TRUE(is_open(second));
    const Fd owner(std::move(fd));
    EXPECT_EQ(fd.get(), -1);  // NOLINT(bugprone-use-after-move): a moved Fd is empty
    EXPECT_EQ(owner.get(), second);
  }
  EXPECT_FALSE(is_open(second));
}

// Prevents: a second close that hits a file which got the number in between.
TEST(Fd, ClosesOnce) {
  Fd fd(open_null());
  const int number = fd.get();
  fd.reset();
  const Fd other(open_null());
  ASSERT_EQ(other.get(), number);
  fd.reset();
  EXPECT_TRUE(is_open(number));
}

// Prevents: `sluice gpus 1>&-`, whose text went into the file that got the number 1, with exit code
// 0.
TEST(HoldStandardFiles, AClosedOneIsNoFileOfOursAndTakesNothing) {
  test::ForkedChild child([] {
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    hold_standard_files();
    const int next = open_null();
    char byte = 0;
    const bool fails = write(STDOUT_FILENO, "x", 1) == -1 && errno == EBADF &&
                       read(STDIN_FILENO, &byte, 1) == -1 && errno == EBADF;
    const bool closes = (fcntl(STDOUT_FILENO, F_GETFD) & FD_CLOEXEC) != 0;
    const bool kept = (fcntl(STDERR_FILENO, F_GETFD) & FD_CLOEXEC) == 0;
    return next > STDERR_FILENO && fails && closes && kept ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace sluice::base
