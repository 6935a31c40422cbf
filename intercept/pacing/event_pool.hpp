#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "intercept/driver/contexts.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

/// Spare events of one context. A launch makes none: while a queue of the context is full, the
/// driver blocks whoever makes an event, and perhaps only the launching thread can end that. So the
/// pool is filled when the context is new, and by the polling thread when few are left.
///
/// Thread-safe. Holds its lock during no driver call.
class EventPool {
 public:
  /// `poller` calls EventPools::fill() when woken. `flags`: of cuEventCreate.
  EventPool(Worker& poller, unsigned flags) noexcept : poller_(poller), flags_(flags) {}

  /// Null if there is none.
  [[nodiscard]] CUevent take() noexcept;
  /// For an event of the context that nobody uses any more. It may have been recorded. `its`: the
  /// context of the event, from whoever does not know whether it lives; then the event is dropped
  /// if the pool is another context's by now, because it ended with its own.
  void give_back(CUevent event, const ContextId* its = nullptr) noexcept;

 private:
  friend class EventPools;
  static constexpr std::size_t kLow = 8;
  static constexpr std::size_t kFilled = 32;
  static constexpr std::size_t kMost = 64;

  struct State {
    ContextId context;
    std::uint32_t begun = 0;  ///< Contexts that have had this pool.
    std::size_t count = 0;    ///< Of events.
  };
  [[nodiscard]] State state() noexcept;
  /// Makes events until there are kFilled, unless the pool is another context's by now. May block.
  void fill(const State& known) noexcept;
  /// For another context, or for none (a null handle). The events ended with theirs.
  void restart(const ContextId& context) noexcept;

  Worker& poller_;
  const unsigned flags_;
  std::mutex mutex_;  ///< Guards the members below.
  State state_;
  std::array<CUevent, kMost> events_{};
};

/// Whether the streams of a context have a channel each. The GPU takes the work of a context from
/// CUDA_DEVICE_MAX_CONNECTIONS channels (8, or 2 under MPS), and streams beyond that share them. A
/// timed event, and a write with a barrier, wait for the work of their stream, and so does whatever
/// follows in the channel: a kernel that waits for one of another stream behind them waits for ever
/// (one H200, driver 580.159.04, 2026-11-29; events without times and stream waits do no such
/// thing).
class Channels {
 public:
  /// Until all streams of a program that begins are seen: those that follow would share with one
  /// that is timed already.
  static constexpr std::uint64_t kSettleNs = 20'000'000;
  /// Streams that shared channels once may do so again in each of the program's rounds.
  static constexpr std::uint64_t kAgainNs = 60'000'000'000;

  /// For a context that begins. `connections`: CUDA_DEVICE_MAX_CONNECTIONS; may be null.
  void begin(const char* connections, bool under_mps) noexcept;
  /// So many streams may have work on the GPU now. One that has none has no channel.
  void note(std::size_t streams) noexcept {
    if (streams > most_.load(std::memory_order_relaxed)) note_more(streams);
    if (streams > channels_.load(std::memory_order_relaxed)) note_shared();
  }
  /// So many streams have had work. In a program that marks its jobs, any may have some now.
  void set_known(std::size_t streams) noexcept { known_.store(streams); }
  void note_known() noexcept { note(known_.load(std::memory_order_relaxed)); }
  /// Fewer than programs count on, as under MPS.
  [[nodiscard]] bool few() const noexcept {
    return channels_.load(std::memory_order_relaxed) < kDefault;
  }
  [[nodiscard]] bool shared(std::uint64_t now_ns) const noexcept {
    return now_ns < until_ns_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kDefault = 8;
  void note_more(std::size_t streams) noexcept;
  void note_shared() noexcept;

  std::atomic<std::size_t> channels_{32};
  std::atomic<std::size_t> most_{0};  ///< Streams with work that there have been at once.
  std::atomic<std::size_t> known_{0};
  std::atomic<std::uint64_t> until_ns_{0};
};

/// What is kept of one context for all its streams.
struct ContextEvents {
  explicit ContextEvents(Worker& poller) noexcept
      : timed(poller, CU_EVENT_DEFAULT), plain(poller, CU_EVENT_DISABLE_TIMING) {}

  EventPool timed;
  EventPool plain;
  Channels channels;
};

/// Where the events of an ended stream go: to the pool of their context, or nowhere (null), if they
/// ended with it.
struct EventReturn {
  EventPool* pool = nullptr;
  ContextId context;

  void give_back(CUevent event) const noexcept {
    if (event != nullptr && pool != nullptr) pool->give_back(event, &context);
  }
};

/// The pools of one device. A pool is used for another context later, but never freed, so a
/// thread that launches while another ends the context finds memory that exists.
class EventPools {
 public:
  EventPools(Worker& poller, bool under_mps) noexcept : poller_(poller), under_mps_(under_mps) {}

  /// Of a living context. New pools are filled: call this before the context's first launch.
  [[nodiscard]] ContextEvents& of(const ContextId& context);
  /// Fills the pools that have few events left. For the polling thread.
  void fill() noexcept;
  /// For a context that has ended (a null handle: unknown which one).
  void context_ended(const ContextId& context) noexcept;

 private:
  /// Null if there are no more.
  [[nodiscard]] ContextEvents* at(std::size_t index) noexcept;

  Worker& poller_;
  const bool under_mps_;
  std::mutex mutex_;  ///< Guards the list.
  std::deque<ContextEvents> pools_;
};

}  // namespace sluice::intercept
