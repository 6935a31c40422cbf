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

class RuntimeDir : public testing::Test {
 protected:
  RuntimeDir() {
    if (const char* old = std::getenv("XDG_RUNTIME_DIR")) old_ = old;
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
  }
  ~RuntimeDir() override {
    if (old_.empty()) {
      unsetenv("XDG_RUNTIME_DIR");
    } else {
      setenv("XDG_RUNTIME_DIR", old_.c_str(), 1);
    }
  }
  test::TempFolder folder_;
  std::string old_;
};

TEST_F(RuntimeDir, IsPrivate) {
  base::ensure_runtime_dir();
  struct stat found {};
  ASSERT_EQ(stat(base::runtime_dir().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  EXPECT_NO_THROW(base::ensure_runtime_dir());
  EXPECT_EQ(socket_path("s"), folder_.file("sluice/s.sock"));
  base::remove_runtime_dir_if_empty();
  EXPECT_NE(access(base::runtime_dir().c_str(), F_OK), 0);
}

TEST_F(RuntimeDir, FallsBackToTmp) {
  const std::string fallback = "/tmp/sluice-" + std::to_string(geteuid());
  setenv("XDG_RUNTIME_DIR", "relative/path", 1);
  EXPECT_EQ(base::runtime_dir(), fallback);
  setenv("XDG_RUNTIME_DIR", "", 1);
  EXPECT_EQ(base::runtime_dir(), fallback);
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(base::runtime_dir(), fallback);
}

// In /tmp another user can create our folder first, and would then own the socket in it.
TEST_F(RuntimeDir, OpenToOthersIsRefused) {
  ASSERT_EQ(mkdir(base::runtime_dir().c_str(), 0700), 0);
  ASSERT_EQ(chmod(base::runtime_dir().c_str(), 0750), 0);
  EXPECT_THROW(base::ensure_runtime_dir(), std::runtime_error);
}

TEST_F(RuntimeDir, LinkIsRefused) {
  test::TempFolder elsewhere;
  ASSERT_EQ(symlink(elsewhere.path().c_str(), base::runtime_dir().c_str()), 0);
  EXPECT_THROW(base::ensure_runtime_dir(), std::runtime_error);
}

TEST_F(RuntimeDir, AnotherUsersIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's folder";
  ASSERT_EQ(mkdir(base::runtime_dir().c_str(), 0700), 0);
  ASSERT_EQ(chown(base::runtime_dir().c_str(), 12345, 12345), 0);
  EXPECT_THROW(base::ensure_runtime_dir(), std::runtime_error);
}

TEST_F(RuntimeDir, MissingBaseIsReported) {
  setenv("XDG_RUNTIME_DIR", (folder_.file("missing")).c_str(), 1);
  try {
    base::ensure_runtime_dir();
    FAIL() << "created a folder inside a missing one";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(base::runtime_dir()), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace sluice::shm
