#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {

/// Processes of a session that begin and end.
class Lifecycle : public Session {
 protected:
  std::uint64_t used() { return board().used.load(); }
  static int status_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
};

/// The numbers of the files that this process has open.
inline std::set<std::string> open_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && !target.string().starts_with("/proc/")) names.insert(entry.path().filename());
  }
  return names;
}

}  // namespace sluice::intercept::test
