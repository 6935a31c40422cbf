#include "base/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sluice::base
