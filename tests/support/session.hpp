#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temp_folder.hpp"

namespace sluice::test {

/// The existing files of a session: files in /dev/shm and in the runtime folder whose names contain
/// the session's name. Other sessions use the same folders at the same time.
[[nodiscard]] std::vector<std::string> files_of_session(const std::string& name);

/// A session of the test's own, and a folder for the output of its processes. The environment of
/// this process names the session, so create it before the first driver call. The destructor
/// removes its files.
class Session {
 public:
  /// `prefix`: the beginning of the name, which identifies the test.
  explicit Session(const std::string& prefix = "test");
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  /// The path of a file in the session's folder.
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] std::string board_file() const;
  [[nodiscard]] bool has_board() const;
  /// Pid of the session's controller from the board, or 0.
  [[nodiscard]] pid_t controller_pid() const;
  /// Makes the session's simulated GPU write a log, and returns its file.
  [[nodiscard]] std::string log_gpu() const;

 private:
  std::string name_;
  TempFolder folder_;
};

/// A test with a session. No file of the session may be left at the end.
class SessionTest : public testing::Test {
 protected:
  explicit SessionTest(const std::string& prefix = "test") : own_session_(prefix) {}
  void TearDown() override;

  const Session own_session_;
  const std::string& session_ = own_session_.name();
};

}  // namespace sluice::test
