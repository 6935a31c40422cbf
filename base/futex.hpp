#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::base {

/// Sleeps while `word` holds `expected`, at most `timeout_ns`. Wakes early on a signal or by
/// chance: callers re-check their condition in a loop. The word may lie in memory shared between
/// processes. A futex instead of a pthread condition, because a condition can hang its
/// broadcaster when a waiter was killed.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::uint64_t timeout_ns) noexcept;

/// Wakes every thread of every process that sleeps on `word`.
void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace sluice::base
