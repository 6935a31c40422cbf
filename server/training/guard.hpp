#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/fd.hpp"

namespace sluice::server::training {

/// A process that ends all processes of a training job when the job has ended, or when this process
/// has, even by a SIGKILL. It knows them by their process group and by a mark in their environment,
/// so it also finds those that have made a session of their own. Not thread-safe.
class Guard {
 public:
  /// program: of guard_main.cpp; empty for no guard. Throws base::RunError if no process can be
  /// started.
  explicit Guard(const std::filesystem::path& program);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  /// Waits until the guard has ended its processes.
  ~Guard();

  /// A job begins. Returns its mark, as NAME=VALUE for its environment.
  [[nodiscard]] std::string begin();
  /// The process group of the job.
  void follow(pid_t group) const;
  /// The job has ended, and its group was killed.
  void end() const;

 private:
  void send(const std::string& packet) const;

  base::Fd socket_;
  pid_t pid_ = -1;
  std::string server_;  ///< Its part of each mark.
  std::string mark_;
  std::uint64_t jobs_ = 0;
};

}  // namespace sluice::server::training
