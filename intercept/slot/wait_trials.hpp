#pragma once
#include <cstdint>

#include "intercept/slot/bet.hpp"
#include "intercept/slot/draw.hpp"

namespace sluice::intercept {

/// Whether a client above waits for work of this one, which it holds: found by trial. A *trial* is
/// 0.1 s of a wait with an open gate, a *control* is the same with a closed one. They come in
/// pairs, in random order: what ends a wait by chance ends it in both. A bet on the trials that
/// ended a wait where the control did not decides, so that a wait that has another reason is taken
/// for proof in one case of kSure at most, however its times are distributed.
///
/// Both parts of a pair come at the same age of a wait, or one straight after the other. A first
/// pair comes after max_hold, and the next one after kSoonNs if the one before spoke for the claim.
/// Once it is proven, the gate is open in all waits but a few controls.
///
/// Reads no clock, allocates nothing. Not thread-safe.
class WaitTrials {
 public:
  static constexpr std::uint64_t kPartNs = 100'000'000;
  static constexpr std::uint64_t kSoonNs = 100'000'000;
  /// A wait for this client would have ended by then.
  static constexpr std::uint64_t kLongestNs = 1'000'000'000;
  static constexpr double kSure = 1000;        ///< The wealth that proves that the holder waits.
  static constexpr double kDoubt = 20;         ///< The wealth that ends that.
  static constexpr double kLeast = 0.25;       ///< What a pair shows on average if it goes on.
  static constexpr unsigned kFirstPeriod = 4;  ///< Once proven, waits from one pair to the next.
  static constexpr unsigned kLongestPeriod = 64;

  WaitTrials() noexcept = default;
  /// The part of a wait before `from_ns` does not count: this client was not there, or not held.
  explicit WaitTrials(std::uint64_t from_ns) noexcept : pause_from_ns_(from_ns) {}

  /// A part begins. Call for a client that holds this one, in a wait since `since_ns`; 0: in none.
  /// `draw`: for the order.
  void begin(std::uint64_t since_ns, std::uint64_t now_ns, std::uint64_t max_hold_ns,
             Draw& draw) noexcept;
  /// In each tick, before begin(): the part that runs may end. It ends with its wait.
  void look(std::uint64_t since_ns, std::uint64_t now_ns) noexcept;

  /// Whether the gate is open for the holder.
  [[nodiscard]] bool is_open() const noexcept {
    return part_ == Part::kTrial || part_ == Part::kOpen;
  }
  /// Whether a part runs, so that look() must be called.
  [[nodiscard]] bool runs() const noexcept { return part_ != Part::kNone; }
  [[nodiscard]] bool proven() const noexcept { return proven_; }

 private:
  enum class Part : std::uint8_t {
    kNone,
    kTrial,
    kControl,
    kOpen,  ///< It is proven that the holder waits; no part of a pair.
  };
  void part_ended(bool with_wait, std::uint64_t now_ns) noexcept;
  void pair_ended() noexcept;

  Part part_ = Part::kNone;
  std::uint64_t part_since_ns_ = 0;
  std::uint64_t wait_ns_ = 0;  ///< Since when the holder is in the wait of the part.
  // The pair.
  bool in_pair_ = false;
  bool trial_first_ = false;
  bool first_done_ = false;
  bool trial_ended_ = false;    ///< The trial has ended its wait,
  bool control_ended_ = false;  ///< and the control.
  bool soon_ = false;           ///< It comes after kSoonNs.
  std::uint64_t pause_from_ns_ = 0;

  bool proven_ = false;
  Bet waits_;                       ///< Claims that the holder waits for this client.
  Bet does_not_;                    ///< Claims the opposite, once that was proven.
  unsigned period_ = kFirstPeriod;  ///< Waits.
  unsigned waits_seen_ = 0;
};

}  // namespace sluice::intercept
