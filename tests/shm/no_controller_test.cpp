// The true reason why a program runs ungated. Prevents: "no controller (start one: sluice
// controller)" for a program that has no descriptor left, or has changed its user.
#include "shm/no_controller.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/node_service.hpp"
#include "shm/session.hpp"
#include "tests/support/session.hpp"

namespace sluice::shm {
namespace {

class NoController : public test::SessionTest {};

TEST_F(NoController, NobodyListens) {
  for (const int error : {ENOENT, ECONNREFUSED}) {
    EXPECT_EQ(why_no_controller(error, session_), "no controller (start one: sluice controller)");
  }
  EXPECT_EQ(why_no_controller(ENOENT, base::kNodeSession),
            "the node service does not run (as root: systemctl start sluice-node)");
}

// After gosu, su-exec or runuser under `sluice exec`.
TEST_F(NoController, AnotherUserHasOne) {
  const std::string other = "/dev/shm/sluice.4294900001." + session_;
  std::ofstream(other).close();
  std::ofstream(other + "2").close();  // of another session
  const std::string why = why_no_controller(ENOENT, session_);
  std::filesystem::remove(other);
  EXPECT_EQ(why, "no controller of uid " + std::to_string(geteuid()) +
                     "; uid 4294900001 has one: run sluice exec after the change of user, or the "
                     "node service (sluice node)");
  EXPECT_EQ(why_no_controller(ENOENT, session_), "no controller (start one: sluice controller)");
  std::filesystem::remove(other + "2");
}

TEST_F(NoController, EveryOtherReasonHasItsOwnWords) {
  const std::string socket = socket_path(session_);
  const std::pair<int, std::string> reasons[] = {
      {EAGAIN, "the controller is too busy to answer"},
      {ETIMEDOUT, "the controller does not answer"},
      {EPIPE, "the controller hung up"},
      {ECONNRESET, "the controller hung up"},
      {EMFILE, "this process has no file descriptor left (ulimit -n)"},
      {ENFILE, "this machine has no file descriptor left (sysctl fs.file-max)"},
      {ENOMEM, "there is no memory for it"},
      {ENOBUFS, "there is no memory for it"},
      {ENAMETOOLONG, "the path of the socket is too long: " + socket},
      {EACCES, "this user may not use the socket " + socket},
      {EPERM, "another user answers at the socket " + socket},
      {EPROTOTYPE, "the controller cannot be reached: Protocol wrong type for socket"},
  };
  for (const auto& [error, why] : reasons) EXPECT_EQ(why_no_controller(error, session_), why);
}

}  // namespace
}  // namespace sluice::shm
