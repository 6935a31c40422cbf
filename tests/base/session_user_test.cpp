// Whose sessions a process sees, on the host and in the user namespace of a rootless container.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/session.hpp"
#include "tests/support/forked_child.hpp"

namespace sluice::base {
namespace {

constexpr int kSkipped = 200;

/// What `check` returns in a process whose /dev/shm is its own, in a user namespace of its own or
/// not; kSkipped where that is not allowed.
int with_own_shm(bool user_namespace, int (*check)()) {
  test::ForkedChild child([=] {
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    if (unshare(CLONE_NEWNS | (user_namespace ? CLONE_NEWUSER : 0)) != 0) return kSkipped;
    if (user_namespace) {
      // Without a group of its own the process can make no file.
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
      std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
    }
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kSkipped;
    if (mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) != 0) return kSkipped;
    return check();
  });
  return child.wait();
}

// Prevents: a user's programs look for the sessions of another number, because such a folder lies
// about.
TEST(SessionUser, OnTheHostIsTheUser) {
  const int result = with_own_shm(false, [] {
    mkdir("/dev/shm/sluice-4711", 0700);
    return !in_user_namespace() && session_uid() == geteuid() ? 0 : 1;
  });
  if (result == kSkipped) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(result, 0);
}

// Prevents: a program in a rootless container is in no session, because there its user has another
// number.
TEST(SessionUser, InAUserNamespaceHasTheNumberOfTheFolder) {
  const int result = with_own_shm(true, [] {
    if (!in_user_namespace()) return 1;
    if (session_uid() != geteuid()) return 2;  // there is no folder
    mkdir("/dev/shm/sluice-", 0700);
    mkdir("/dev/shm/sluice-12x", 0700);
    mkdir("/dev/shm/other-12", 0700);
    std::ofstream("/dev/shm/sluice-13") << "a file";
    if (session_uid() != geteuid()) return 3;
    mkdir("/dev/shm/sluice-4711", 0700);
    return session_uid() == 4711 ? 0 : 4;
  });
  if (result == kSkipped) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace sluice::base
