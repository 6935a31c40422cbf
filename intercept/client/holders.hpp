#pragma once
#include <array>
#include <cstdint>

#include "intercept/client/seat.hpp"

namespace sluice::intercept {

/// What a client's watcher knows of the clients that can hold its gate: who is dead, who is
/// stopped, and whose hold has lasted too long. It only reads what those clients write anyway, and
/// needs no controller.
///
/// Used by the watcher's thread, which calls tick() every 20 ms.
class Holders {
 public:
  /// Marks the dead of the whole board. Of the others, opens this gate for holders that are stopped
  /// or make no progress, and closes it again for one that has continued.
  void tick(const Seat& seat, std::uint64_t now_ns) noexcept;

  /// Whether a client above died a moment ago. What it announced will not come.
  [[nodiscard]] bool one_died_lately() const noexcept { return died_ticks_ != 0; }

 private:
  /// A holder, since its bit was first seen in the gate.
  struct Holder {
    std::uint64_t job = 0;
    std::uint64_t beat_ns = 0;
    std::uint64_t work = 0;
    std::uint64_t progress_ns = 0;  ///< When `work` last changed.
    std::uint64_t silent_ns = 0;    ///< Time of ours without a sign of life.
    bool stopped = false;           ///< The job is waived until the holder goes on.
    bool warned = false;            ///< That it is stopped.
  };

  void find_dead(const Seat& seat) noexcept;
  void look_at(const Seat& seat, int slot, bool is_new, std::uint64_t now_ns) noexcept;
  static void note_signs(Holder& holder, const shm::Slot& of, std::uint64_t passed_ns,
                         std::uint64_t now_ns) noexcept;
  static void waive_stopped(const Seat& seat, int slot, Holder& holder) noexcept;
  static void enforce_max_hold(const Seat& seat, int slot, const Holder& holder,
                               std::uint64_t now_ns) noexcept;

  std::array<Holder, shm::kSlots> holders_{};
  std::uint64_t looked_at_ = 0;  ///< Slots that the last tick looked at.
  std::uint64_t stopped_ = 0;    ///< Slots whose job is waived because they are stopped.
  std::uint64_t dead_ = 0;       ///< Dead slots of the last tick.
  int died_ticks_ = 0;
  std::uint64_t last_tick_ns_ = 0;
  std::uint64_t passed_ns_ = 0;  ///< Since the last tick, as far as this thread had the processor.
};

}  // namespace sluice::intercept
