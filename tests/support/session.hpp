#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temp_folder.hpp"

namespace sluice::test {

/// Files of a session that exist: those in /dev/shm and in the runtime folder whose names hold its
/// name. Other sessions use the same folders at the same time.
[[nodiscard]] std::vector<std::string> files_of_session(const std::string& name);

/// A session that nobody else has, and a folder for what its processes write. The environment of
/// this process names both, so make the session before the first driver call. At the end its files
/// are removed.
class Session {
 public:
  /// `prefix`: the beginning of the name, which says whose test it is.
  explicit Session(const std::string& prefix = "test");
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  /// The path of a file in the session's folder.
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] std::string board_file() const;
  [[nodiscard]] bool has_board() const;
  /// Pid of the session's controller as the board says, or 0.
  [[nodiscard]] pid_t controller_pid() const;
  /// From now on the session's simulated GPU writes a log: its file.
  [[nodiscard]] std::string log_gpu() const;

 private:
  std::string name_;
  TempFolder folder_;
};

/// A test with a session, of which nothing may be left at the end.
class SessionTest : public testing::Test {
 protected:
  explicit SessionTest(const std::string& prefix = "test") : own_session_(prefix) {}
  void TearDown() override;

  const Session own_session_;
  const std::string& session_ = own_session_.name();
};

}  // namespace sluice::test
