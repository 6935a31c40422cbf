#pragma once
#include <cstdint>

#include "shm/board.hpp"

/// Whose turn it is among the clients of one priority on one device: the rule, pure, on the words
/// of the board (docs/reference/turns.md).
namespace sluice::intercept {

// The bits of TurnLine::takes.
inline constexpr std::uint32_t kTakes = 1;
/// The gate of the client is closed, and work that it gave the GPU before runs on.
inline constexpr std::uint32_t kRunsOn = 2;
/// The client wants to run, and its count is that of now. Before its first look in a job it is not.
inline constexpr std::uint32_t kWants = 4;

/// Whether the client of `slot` should take turns: it can, and it or another one that can has a
/// weight, or nothing else is between them and short slices.
[[nodiscard]] bool should_take_turns(const shm::Board& board, int slot,
                                     std::uint64_t now_ns) noexcept;

/// Each client decides for itself by what the others say on the board. Several take a turn that
/// nobody has, and at their next look all but the first give it back. For such a moment several
/// run, or nobody does: that costs time, and nothing depends on it.
class TurnRule {
 public:
  /// Long against a switch of 0.12 ms.
  static constexpr std::uint64_t kTurnNs = 20'000'000;
  static constexpr std::uint64_t kLeastTurnNs = 2'000'000;
  /// A turn in which jobs above hold its owner is longer, at most so many times, and counts for at
  /// least that part of it: next to those that are nearly always busy, somebody else would wait for
  /// minutes.
  static constexpr std::uint64_t kMostTurns = 5;
  /// A client whose kernels ran on for longer than that has had no more than this.
  static constexpr std::uint64_t kMostAheadNs = 200'000'000;
  /// A turn ends early when its owner has had no work for this long. Its owner looks this often.
  static constexpr std::uint64_t kIdleNs = 1'000'000;
  /// The turn of an owner that is stopped is void so long after its end.
  static constexpr std::uint64_t kGraceNs = 10'000'000;
  /// How often the owner looks whether the GPU has come to its closed gate at the end of its turn,
  /// and for how long at most.
  static constexpr std::uint64_t kDrainLookNs = 30'000;
  static constexpr std::uint64_t kMostDrainNs = 20'000'000;
  /// A client that waits for nothing looks again after this time.
  static constexpr std::uint64_t kLookNs = 20'000'000;
  /// A client whose watcher has been silent for this long is stopped, and takes no turns.
  static constexpr std::uint64_t kStoppedNs = 150'000'000;

  struct Decision {
    bool takes = false;          ///< Whether the client takes turns at all.
    bool runs = true;            ///< Whether its gate is open, as far as turns go.
    bool runs_on = false;        ///< Whether its work runs on behind the closed gate.
    bool wants = false;          ///< Whether it wants to run.
    std::uint64_t until_ns = 0;  ///< TurnLine::until_ns
    std::uint64_t used = 0;      ///< TurnLine::used
    std::uint64_t look_ns = 0;   ///< When to look again, if nobody calls before.
    int call = -1;               ///< Who has to look now, or -1.

    /// TurnLine::takes
    [[nodiscard]] std::uint32_t takes_word() const noexcept {
      return takes ? kTakes | (runs_on ? kRunsOn : 0) | (wants ? kWants : 0) : 0;
    }
  };

  /// `time_scale`: how many times slower than real time the device runs.
  explicit TurnRule(double time_scale = 1) noexcept : time_scale_(time_scale) {}

  /// For the client in `slot`. The caller writes the decision to the board at once. `drained`:
  /// whether no work of the client that the closed gate does not hold is left on the GPU.
  Decision look(const shm::Board& board, int slot, std::uint64_t now_ns,
                bool drained = true) noexcept;
  /// Whether the turn is over but for what runs on the GPU.
  [[nodiscard]] bool drains() const noexcept { return drain_ns_ != 0; }

 private:
  struct Others;

  [[nodiscard]] std::uint64_t scaled(std::uint64_t ns) const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(ns) * time_scale_);
  }
  void settle(const shm::Slot& own, int slot, const Others& others, bool drained,
              std::uint64_t now_ns) noexcept;
  void charge(std::uint64_t ns, std::uint32_t weight) noexcept;
  void note_work(bool has, std::uint64_t now_ns) noexcept;
  [[nodiscard]] Decision with_turn(const shm::Slot& own, const Others& others,
                                   std::uint64_t now_ns) noexcept;
  [[nodiscard]] Decision without_turn(const shm::Slot& own, const Others& others,
                                      std::uint64_t now_ns) noexcept;
  [[nodiscard]] Decision drain(std::uint64_t now_ns) noexcept;
  [[nodiscard]] Decision end(const Others& others, bool is_second, std::uint64_t now_ns) noexcept;
  [[nodiscard]] Decision run_open(std::uint64_t look_ns) noexcept;
  void lose() noexcept;
  void begin(const shm::Slot& own, std::uint64_t now_ns) noexcept;
  /// A client that takes turns, with an open gate.
  [[nodiscard]] Decision taking(std::uint64_t look_ns) const noexcept;
  [[nodiscard]] Decision go_on(std::uint64_t left_ns, std::uint64_t now_ns) const noexcept;
  [[nodiscard]] Decision wait(std::uint64_t look_ns, std::uint64_t now_ns) noexcept;

  double time_scale_;
  std::uint64_t used_ = 0;
  bool taking_ = false;  ///< Took turns at the last look. A slot that says no was made anew.
  bool has_turn_ = false;
  bool open_ = false;            ///< Its gate has been open without a turn since the last look.
  bool runs_on_ = false;         ///< Its work runs on behind the closed gate, as far as it knows.
  bool wanted_ = false;          ///< Whether it wanted to run at the last look.
  std::uint32_t group_ = 0;      ///< Device and priority at the last look.
  std::uint64_t looked_ns_ = 0;  ///< When that was.
  std::uint64_t since_ns_ = 0;   ///< Begin of the turn.
  std::uint64_t held_ns_ = 0;    ///< For how long others had held it by then.
  std::uint64_t drain_ns_ = 0;   ///< Since when it waits for its GPU; 0: it does not.
  std::uint64_t idle_ns_ = 0;    ///< Since when it has had no work; 0: it has some.
  std::uint64_t lost_ns_ = 0;    ///< GPU time that work of others took since its last charge.
};

}  // namespace sluice::intercept
