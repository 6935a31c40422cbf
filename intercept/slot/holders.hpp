#pragma once
#include <array>
#include <cstdint>

#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/wait_trials.hpp"

namespace sluice::intercept {

/// What a client's watcher knows about the clients that can hold its gate: which of them are dead,
/// and which of their holds do not count. It only reads words that those clients write anyway, and
/// needs no controller.
///
/// One rule: a holder that is silent, or makes no progress for max_hold, is waived until it makes
/// progress again. A holder may also wait for work of the very client that it holds (a pipeline of
/// two processes, a collective) while another of its threads launches on. So a wait of a holder
/// that outlasts max_hold opens the gate for a short trial (WaitTrials). Once it is proven that the
/// holder waits for this client, the client is no longer held while that holder waits.
///
/// Used by the watcher's thread, which calls tick() every 20 ms.
class Holders {
 public:
  /// Marks the dead clients of the whole board. Opens this gate for living holders that do not
  /// count, and closes it again for those that count again. `now_ns` may be older than what this
  /// call finds on the board: the process may have been stopped meanwhile.
  void tick(const Seat& seat, std::uint64_t now_ns) noexcept;

  /// Whether a client above died within the last 0.1 s. The jobs that it announced will not begin.
  [[nodiscard]] bool one_died_lately() const noexcept { return died_ticks_ != 0; }

 private:
  enum class Waived : std::uint8_t {
    kNo,
    kSilent,  ///< Until a sign of life.
    kIdle,    ///< Until a launch, or a synchronising call that returns.
    kTrial,   ///< Until its wait ends, or the trial does.
  };
  /// A holder, as seen since its bit appeared in the gate.
  struct Holder {
    std::uint64_t job = 0;
    std::uint64_t beat_ns = 0;
    std::uint64_t work = 0;
    std::uint64_t progress_ns = 0;  ///< When `work` last changed.
    std::uint64_t silent_ns = 0;  ///< Our own running time without a sign of life from the holder.
    Waived waived = Waived::kNo;
    bool warned = false;  ///< The message about this job was written.
  };
  /// Whether a client above waits for work of this one. Outlasts its jobs.
  struct Pair {
    std::uint32_t generation = 0;
    WaitTrials trials;
  };

  void find_dead(const Seat& seat) noexcept;
  void look_at(const Seat& seat, int slot, bool is_new, std::uint64_t now_ns) noexcept;
  static void note_signs(Holder& holder, const shm::Slot& of, std::uint64_t passed_ns) noexcept;
  void look_for_reasons(const Seat& seat, int slot, std::uint64_t now_ns) noexcept;
  void waive(const Seat& seat, int slot, Waived why) noexcept;
  void honour(const Seat& seat, int slot) noexcept;
  void warn(const Seat& seat, int slot, std::uint64_t idle_ns) noexcept;

  void look_at_trial(const Seat& seat, int slot, std::uint64_t now_ns) noexcept;
  void begin_trial(const Seat& seat, int slot, std::uint64_t now_ns) noexcept;
  void say_if_proven(const Seat& seat, int slot, bool was_proven) noexcept;

  std::array<Holder, shm::kSlots> holders_{};
  std::array<Pair, shm::kSlots> pairs_{};
  std::uint64_t looked_at_ = 0;  ///< Slots that the last tick watched.
  std::uint64_t waived_ = 0;     ///< Slots whose job is waived.
  std::uint64_t tried_ = 0;      ///< Slots of which a trial, or a control, runs.
  Draw draw_;
  std::uint64_t dead_ = 0;  ///< Dead slots of the last tick.
  int died_ticks_ = 0;
  std::uint64_t last_tick_ns_ = 0;
  std::uint64_t passed_ns_ = 0;  ///< Since the last tick; limited to kLongestTickNs.
};

}  // namespace sluice::intercept
