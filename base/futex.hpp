#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::base {

/// Sleeps while `word` has the value `expected`, at most `timeout_ns`. May wake early, so callers
/// check their condition in a loop. The word may be in memory shared between processes. A pthread
/// condition is no alternative: it can hang its broadcaster after a waiter was killed.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::uint64_t timeout_ns) noexcept;

/// Wakes every thread of every process that sleeps on `word`.
void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace sluice::base
