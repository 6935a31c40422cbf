#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "shm/mapping.hpp"
#include "shm/view.hpp"

namespace sluice::bench {

/// A session of its own with the real controller, for as long as the object lives.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::string directory_;
  pid_t controller_ = -1;
};

/// A client of that session without a GPU, attached by hand, on the null driver's device.
class Client {
 public:
  Client(const std::string& session, int priority);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void begin();
  void end();
  [[nodiscard]] shm::Board& board() const { return mapping_.board(); }
  /// The slot of process `pid`, waited for.
  [[nodiscard]] shm::Slot& slot_of(pid_t pid) const;

 private:
  shm::BoardMapping mapping_;
  int connection_ = -1;
  int slot_ = -1;
};

/// Starts `command` with `variables` in front of the environment; `quiet`: without its output.
pid_t spawn(const std::vector<std::string>& command, const std::vector<std::string>& variables,
            bool quiet = false);
/// Exit code, or 128 + signal.
int wait_for(pid_t child);

}  // namespace sluice::bench
