#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_client.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {

/// Users of the tests. They need no entry in /etc/passwd.
inline constexpr uid_t kAnna = 12345;
inline constexpr uid_t kBert = 12346;
inline constexpr uid_t kCarl = 12347;

inline constexpr const char* kSetpriv = "/usr/bin/setpriv";
inline constexpr const char* kUnshare = "/usr/bin/unshare";

/// A program and its arguments that become `uid` and then what follows them.
[[nodiscard]] std::vector<std::string> as_user(uid_t uid);

/// Runs `body` in a process of `uid`, and returns its exit code.
template <class Body>
int run_as(uid_t uid, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(uid) != 0 || setuid(uid) != 0) _exit(99);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// How often `part` is in `text`.
[[nodiscard]] std::size_t count_of(const std::string& text, const std::string& part);

/// The number of open descriptors of a process.
[[nodiscard]] std::size_t open_files(pid_t pid);

/// Sends bytes with descriptors. Whether all were sent.
[[nodiscard]] bool send_with(int socket, const void* bytes, std::size_t size,
                             const std::vector<int>& files);

/// A client of the node's board that runs as `uid`.
[[nodiscard]] std::unique_ptr<FakeClient> client_of(uid_t uid, int priority, int device = 1);

/// A node service in a folder of its own, which SLUICE_NODE_DIR names. Ends with the test.
class NodeServiceTest : public testing::Test {
 protected:
  NodeServiceTest();
  ~NodeServiceTest() override;
  void TearDown() override;

  /// Starts `sluice node` with this policy, if not empty, and waits until clients may attach.
  /// `through`: a program with arguments that becomes the service.
  void start(const std::string& policy = {}, std::vector<std::string> through = {});
  /// The last line of the service about being ready.
  [[nodiscard]] std::string ready_line() const;
  /// Ends the service with SIGKILL.
  void kill_service();
  [[nodiscard]] Process& service() { return *service_; }
  [[nodiscard]] std::string folder() const { return parent_.file("node"); }
  [[nodiscard]] std::string socket() const { return folder() + "/node.sock"; }
  [[nodiscard]] std::string policy_file() const { return parent_.file("policy.json"); }
  [[nodiscard]] std::string log() const { return read_file(parent_.file("log")); }
  /// Whether the log has this text, now or soon.
  [[nodiscard]] bool logs(const std::string& text) const;

  TempFolder parent_;

 private:
  std::unique_ptr<Process> service_;
  int starts_ = 0;
};

/// With processes of several users.
class UsersTest : public NodeServiceTest {
 protected:
  void SetUp() override;
};

}  // namespace sluice::test
