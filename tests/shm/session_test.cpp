#include "shm/session.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support/temp_folder.hpp"

namespace sluice::shm {
namespace {

TEST(SessionName, IsSafeAsAFileName) {
  for (const char* name : {"default", "a", "A-1_b.c", "0123456789012345678901234567890x"}) {
    EXPECT_TRUE(base::valid_session_name(name)) << name;
  }
  for (const char* name : {"", ".", "..", ".a", "a.", "a/b", "../a", "a b", "a\n", "\xc3\xa4",
                           "01234567890123456789012345678901x"}) {
    EXPECT_FALSE(base::valid_session_name(name)) << name;
  }
}

TEST(SessionName, NamesBoardPerUser) {
  EXPECT_EQ(board_name("s"), "sluice." + std::to_string(geteuid()) + ".s");
}

// Prevents: a login shell, a cron job and a service of one user that cannot share a session,
// because the board goes by the user and the socket by the environment.
TEST(RuntimeDir, DependsOnTheUserAlone) {
  const std::string expected = "/dev/shm/sluice-" + std::to_string(geteuid());
  for (const char* folder : {"/run/user/1000", "relative/path", ""}) {
    setenv("XDG_RUNTIME_DIR", folder, 1);
    setenv("TMPDIR", folder, 1);
    EXPECT_EQ(base::runtime_dir(), expected);
  }
  unsetenv("XDG_RUNTIME_DIR");
  unsetenv("TMPDIR");
  EXPECT_EQ(base::runtime_dir(), expected);
  EXPECT_EQ(socket_path("s"), expected + "/s.sock");
}

// Prevents: a folder that disappears between its making and the first file in it.
TEST(RuntimeDir, StaysWhileItIsLocked) {
  {
    const base::Fd lock = base::lock_runtime_dir();
    base::remove_runtime_dir_if_empty();
    struct stat found {};
    ASSERT_EQ(stat(base::runtime_dir().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0700U);
  }
  const base::Fd again = base::lock_runtime_dir();
  EXPECT_TRUE(again);
  base::remove_runtime_dir_if_empty();
}

class PrivateFolder : public testing::Test {
 protected:
  test::TempFolder parent_;
  std::string folder_ = parent_.file("sluice");
};

TEST_F(PrivateFolder, IsMadeForItsUserOnly) {
  base::ensure_private_folder(folder_);
  struct stat found {};
  ASSERT_EQ(stat(folder_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  EXPECT_NO_THROW(base::ensure_private_folder(folder_));
}

// In /dev/shm anybody can make our folder first: a socket in it would be theirs.
TEST_F(PrivateFolder, OpenToOthersIsRefused) {
  ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0750), 0);
  EXPECT_THROW(base::ensure_private_folder(folder_), std::runtime_error);
}

TEST_F(PrivateFolder, LinkIsRefused) {
  const test::TempFolder elsewhere;
  ASSERT_EQ(symlink(elsewhere.path().c_str(), folder_.c_str()), 0);
  EXPECT_THROW(base::ensure_private_folder(folder_), std::runtime_error);
}

TEST_F(PrivateFolder, AnotherUsersIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's folder";
  ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
  ASSERT_EQ(chown(folder_.c_str(), 12345, 12345), 0);
  EXPECT_THROW(base::ensure_private_folder(folder_), std::runtime_error);
}

TEST_F(PrivateFolder, MissingBaseIsSaid) {
  const std::string missing = folder_ + "/missing";
  try {
    base::ensure_private_folder(missing);
    FAIL() << "made a folder below a missing one";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(missing), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice::shm
