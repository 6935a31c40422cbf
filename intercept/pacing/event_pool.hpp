#pragma once
#include <array>
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
  /// `poller` calls EventPools::fill() when woken.
  explicit EventPool(Worker& poller) noexcept : poller_(poller) {}

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
  std::mutex mutex_;  ///< Guards the members below.
  State state_;
  std::array<CUevent, kMost> events_{};
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
  explicit EventPools(Worker& poller) noexcept : poller_(poller) {}

  /// The pool of a living context. A new one is filled: call this before the context's first
  /// launch.
  [[nodiscard]] EventPool& of(const ContextId& context);
  /// Fills the pools that have few events left. For the polling thread.
  void fill() noexcept;
  /// For a context that has ended (a null handle: unknown which one).
  void context_ended(const ContextId& context) noexcept;

 private:
  /// Null if there are no more.
  [[nodiscard]] EventPool* at(std::size_t index) noexcept;

  Worker& poller_;
  std::mutex mutex_;  ///< Guards the list.
  std::deque<EventPool> pools_;
};

}  // namespace sluice::intercept
