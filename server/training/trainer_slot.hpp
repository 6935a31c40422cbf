#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "server/training/trainer.hpp"
#include "shm/mapping.hpp"

namespace sluice::server::training {

/// The slot of the trainer's process on the board. All calls do nothing, or return zeros, while the
/// process has none. Not thread-safe.
class TrainerSlot {
 public:
  /// session: empty if there is no board, as on a CPU.
  explicit TrainerSlot(std::string session) : session_(std::move(session)) {}

  /// From now on the trainer is this process; 0: there is none.
  void follow(pid_t pid);

  [[nodiscard]] TrainerMemory memory();
  void set_grant(std::uint64_t bytes);
  /// Returns the epoch, or 0 if the process has no slot.
  std::uint64_t order(Order kind);
  void resume();
  /// Whether the order of this epoch has been obeyed, or its process has lost its slot.
  [[nodiscard]] bool done(std::uint64_t epoch);
  /// How long it took from the last order until it was obeyed. ns
  [[nodiscard]] std::uint64_t took_ns();

 private:
  [[nodiscard]] shm::Slot* slot();

  std::string session_;
  std::optional<shm::BoardMapping> board_;
  pid_t pid_ = 0;
  int index_ = -1;
  std::uint32_t generation_ = 0;
};

}  // namespace sluice::server::training
