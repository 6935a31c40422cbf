#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/training/trainer.hpp"
#include "shm/mapping.hpp"
#include "shm/memory.hpp"

namespace sluice::server::training {

/// The slot of the trainer's process on the board, and this process as its broker. All calls do
/// nothing, or return zeros, while one of the two has no slot. Not thread-safe.
class TrainerSlot {
 public:
  /// session: empty if there is no board, as on a CPU.
  explicit TrainerSlot(std::string session) : session_(std::move(session)) {}

  /// From now on the trainer is this process, which leads its group, or the first client of that
  /// group: what is started may be a script that does not exec its program. 0: there is none.
  void follow(pid_t pid);

  [[nodiscard]] TrainerMemory memory();
  /// Why memory() says that none is attached; empty if one is.
  [[nodiscard]] std::string_view why_not_attached();
  [[nodiscard]] MemoryUse memory_use();
  void set_grant(std::uint64_t bytes);
  /// Returns the epoch, or 0 if the order cannot be given.
  std::uint64_t order(shm::MemoryOrder kind);
  void resume();
  /// Whether the order of this epoch has been obeyed, or its process has lost its slot.
  [[nodiscard]] bool done(std::uint64_t epoch);
  /// How the last order was obeyed.
  [[nodiscard]] shm::ObeyParts parts();
  /// Opens the gate of the trainer until it has obeyed.
  void drain();

 private:
  [[nodiscard]] bool has_board();
  [[nodiscard]] bool find();
  [[nodiscard]] bool lives(shm::SlotOf client) const;
  [[nodiscard]] bool is_trainer(pid_t pid) const;
  template <class IsClient>
  void find_slot(const IsClient& is_client, shm::SlotOf& client) const;
  void find_broker();
  [[nodiscard]] int device_of(int slot) const;
  [[nodiscard]] shm::MemoryLine& line() const;
  std::uint64_t give(shm::MemoryOrder kind);

  std::string session_;
  std::optional<shm::BoardMapping> board_;
  pid_t pid_ = 0;
  shm::SlotOf trainer_;
  shm::SlotOf broker_;
};

}  // namespace sluice::server::training
