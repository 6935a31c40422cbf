// ioctl is hooked for every program, and works as without the hook.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace {

TEST(HookedIoctl, WorksAsWithoutTheHook) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_EQ(write(ends[1], "abc", 3), 3);
  int waiting = 0;
  errno = 7;
  EXPECT_EQ(ioctl(ends[0], FIONREAD, &waiting), 0);
  EXPECT_EQ(waiting, 3);
  EXPECT_EQ(errno, 7) << "the first call looks for the next ioctl";
  EXPECT_EQ(ioctl(ends[0], FIONREAD, &waiting), 0);
  EXPECT_EQ(errno, 7);
  EXPECT_EQ(ioctl(ends[0], FIOCLEX), 0) << "without an argument";
  EXPECT_EQ(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
}

TEST(HookedIoctl, ErrorsAreThoseOfTheSystem) {
  std::array<int, 12> argument{};
  EXPECT_EQ(ioctl(-1, TIOCGWINSZ, &argument), -1);
  EXPECT_EQ(errno, EBADF);
  const int file = open("/dev/null", O_RDWR);
  for (const unsigned long request : {0xc030'462bUL, 0xc020'462aUL, 0xc010'4629UL}) {
    errno = 0;
    EXPECT_EQ(ioctl(file, request, &argument), -1);
    EXPECT_EQ(errno, ENOTTY) << "it is no GPU";
    EXPECT_EQ(ioctl(file, request, nullptr), -1);
  }
  close(file);
}

}  // namespace
