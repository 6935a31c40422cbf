#pragma once
#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "controller/clients.hpp"

namespace sluice::controller {

/// Reads command lines in a thread of its own. A read of /proc/PID/cmdline may block on the
/// process, which would stop the heartbeat.
class CommandReader {
 public:
  CommandReader();
  ~CommandReader();
  CommandReader(const CommandReader&) = delete;
  CommandReader& operator=(const CommandReader&) = delete;

  /// Requests the command line of a new client. Ignored while too many requests are waiting.
  void ask(int slot, std::uint32_t generation, pid_t pid);

  /// On every heartbeat: writes the command lines to the slots that still have the same client.
  void deliver(Clients& clients);

 private:
  struct Item {
    int slot;
    std::uint32_t generation;
    pid_t pid;
    std::string command;
  };
  struct Shared {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<Item> asked;
    std::vector<Item> done;
    bool stop = false;
  };
  static void read_all(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace sluice::controller
