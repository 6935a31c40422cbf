#pragma once
#include <array>
#include <cstdint>

#include "intercept/slot/client_slot.hpp"

namespace sluice::intercept {

/// What a client's watcher knows about the clients that can hold its gate: which of them are dead,
/// which are stopped, and which have held for too long. It only reads words that those clients
/// write anyway, and needs no controller.
///
/// Used by the watcher's thread, which calls tick() every 20 ms.
class Holders {
 public:
  /// Marks the dead clients of the whole board. Opens this gate for living holders that are stopped
  /// or make no progress, and closes it again for a stopped holder that has continued.
  void tick(const Seat& seat, std::uint64_t now_ns) noexcept;

  /// Whether a client above died within the last 0.1 s. The jobs that it announced will not begin.
  [[nodiscard]] bool one_died_lately() const noexcept { return died_ticks_ != 0; }

 private:
  /// A holder, as seen since its bit appeared in the gate.
  struct Holder {
    std::uint64_t job = 0;
    std::uint64_t beat_ns = 0;
    std::uint64_t work = 0;
    std::uint64_t progress_ns = 0;  ///< When `work` last changed.
    std::uint64_t silent_ns = 0;  ///< Our own running time without a sign of life from the holder.
    bool stopped = false;         ///< The job is waived until the holder continues.
    bool warned = false;          ///< The message that the holder is stopped was written.
  };

  void find_dead(const Seat& seat) noexcept;
  void look_at(const Seat& seat, int slot, bool is_new, std::uint64_t now_ns) noexcept;
  static void note_signs(Holder& holder, const shm::Slot& of, std::uint64_t passed_ns,
                         std::uint64_t now_ns) noexcept;
  static void waive_stopped(const Seat& seat, int slot, Holder& holder) noexcept;
  static void enforce_max_hold(const Seat& seat, int slot, const Holder& holder,
                               std::uint64_t now_ns) noexcept;

  std::array<Holder, shm::kSlots> holders_{};
  std::uint64_t looked_at_ = 0;  ///< Slots that the last tick watched.
  std::uint64_t stopped_ = 0;    ///< Slots whose job is waived because they are stopped.
  std::uint64_t dead_ = 0;       ///< Dead slots of the last tick.
  int died_ticks_ = 0;
  std::uint64_t last_tick_ns_ = 0;
  std::uint64_t passed_ns_ = 0;  ///< Since the last tick; limited to kLongestTickNs.
};

}  // namespace sluice::intercept
