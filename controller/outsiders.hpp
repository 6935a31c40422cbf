#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shm/board.hpp"
#include "shm/snapshot.hpp"

namespace sluice::controller {

/// Shows on the board how many processes use each device without a slot, while a client outranks
/// another. Nobody knows whether they are busy, and next to a busy one a program with short slices
/// would get little (docs/reference/slices.md). In a thread of its own, because NVML and /proc may
/// block.
class Outsiders {
 public:
  Outsiders(shm::Board& board, std::string session);
  ~Outsiders();
  Outsiders(const Outsiders&) = delete;
  Outsiders& operator=(const Outsiders&) = delete;

  /// Counts `found` by device.
  static void show(shm::Board& board, const std::vector<shm::OutsideProcess>& found) noexcept;
  /// Whether slices depend on it now.
  [[nodiscard]] static bool matter(const shm::Board& board) noexcept;

 private:
  /// The thread may outlive the object, for as long as it is blocked.
  struct Shared {
    std::mutex mutex;
    std::condition_variable wake;
    shm::Board* board = nullptr;  ///< Null: over.
    std::string session;
  };
  static void look(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace sluice::controller
