#pragma once
#include <string>
#include <thread>

#include "base/fd.hpp"
#include "shm/mapping.hpp"

namespace sluice::test {

/// A live client without a GPU, in this process. Its watcher only beats, so it obeys no gate and
/// notices no death.
class AttachedClient {
 public:
  /// On the device whose UUID consists of the byte `device`. Throws if the controller refuses.
  AttachedClient(const std::string& session, int priority, int device = 1);
  ~AttachedClient();
  AttachedClient(const AttachedClient&) = delete;
  AttachedClient& operator=(const AttachedClient&) = delete;

  void begin();
  void end();
  /// From now on the client looks like a stopped process.
  void stop_beating() { beat_ = {}; }
  [[nodiscard]] int slot() const { return slot_; }
  [[nodiscard]] shm::Board& board() const { return mapping_.board(); }

 private:
  base::Fd connection_;
  shm::BoardMapping mapping_;
  int slot_ = -1;
  std::jthread beat_;
};

}  // namespace sluice::test
