#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "intercept/client/client.hpp"
#include "intercept/client/process.hpp"
#include "intercept/driver/driver.hpp"
#include "intercept/pacing/durations.hpp"
#include "shm/board.hpp"

namespace sluice::intercept {

/// What a thread remembers of a stream: all that a launch into it needs while nothing is to be
/// done but to count it. Void when the process's version is another one.
struct alignas(64) RememberedStream {
  static constexpr std::uintptr_t kNone = ~std::uintptr_t{0};
  std::uintptr_t handle = kNone;
  std::uint64_t version = 0;
  const shm::Word* gate = nullptr;  ///< The slot's own word, or one that is 0.
  /// The slot's own word, or one that is 0 (the policy never paces) or 1 (launches are learned).
  const shm::HalfWord* must_pace = nullptr;
  /// Where launches of the first entry are counted; those of the next one a row behind. Null: a
  /// launch has more to do.
  shm::Word* counts = nullptr;
  shm::Count kind = shm::Count::kSize;  ///< Of which those are.
  bool exclusive = false;               ///< No other thread counts there.
  Stream* stream = nullptr;             ///< Null: of a process that is not attached.
};

/// Two places for a handle, so that streams that share one do not drive each other out.
class RememberedStreams {
 public:
  [[nodiscard]] RememberedStream* find(CUstream stream) noexcept {
    const auto handle = reinterpret_cast<std::uintptr_t>(stream);
    const std::size_t place = first_place(stream);
    if (places_[place].handle == handle) return &places_[place];
    if (places_[place ^ 1U].handle == handle) return &places_[place ^ 1U];
    return nullptr;
  }
  /// An empty place for the stream: its own, or that of another one, which moves on.
  [[nodiscard]] RememberedStream& place_for(CUstream stream) noexcept;
  /// The thread has another context now: its default streams are others.
  void forget_default_streams() noexcept;

  /// From pass() to Launch: what the launch has been counted as; kSize: it was not.
  shm::Count counted = shm::Count::kSize;

 private:
  static constexpr unsigned kBits = 4;
  static std::size_t first_place(CUstream stream) noexcept {
    constexpr std::uint64_t kSpread = 0x9e37'79b9'7f4a'7c15;
    return reinterpret_cast<std::uintptr_t>(stream) * kSpread >> (64 - kBits);
  }
  std::array<RememberedStream, std::size_t{1} << kBits> places_{};
};

extern constinit thread_local RememberedStreams t_streams;

/// The hot path. True: the launch is counted, and there is nothing else to do. Counts first and
/// then looks at the version: whoever ends a job changes the version and then looks at the count
/// (Jobs::nothing_since), so one of the two sees the other.
inline bool pass(Entry entry, CUstream stream) noexcept {
  const RememberedStream* known = t_streams.find(stream);
  if (known == nullptr || known->counts == nullptr) return false;
  constexpr std::size_t kRow = sizeof(shm::EntryCounters) / sizeof(shm::Word);
  shm::Word& count = known->counts[static_cast<std::size_t>(entry) * kRow];
  if (known->exclusive) [[likely]] {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  } else {
    count.fetch_add(1, std::memory_order_relaxed);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const bool due = known->version != g_process.version.load(std::memory_order_relaxed) ||
                   known->must_pace->load(std::memory_order_relaxed) != 0 ||
                   known->gate->load(std::memory_order_relaxed) != 0;
  if (due) t_streams.counted = known->kind;
  return !due;
}

/// A launch that pass() did not let through, in front of the driver's call and behind it. Runs in
/// the caller's thread; return codes, argument lifetimes and order stay the program's own.
class Launch {
 public:
  /// Holds and paces. `stream` is named: never 0 for a per-thread entry.
  Launch(Entry entry, CUstream stream, const Work& work, shm::Count counted) noexcept;
  /// After the driver's call.
  void done(CUresult result) noexcept;

 private:
  void prepare(shm::Count counted);
  void count_as(shm::Count kind, shm::Count counted) noexcept;
  void hold_and_pace();

  Entry entry_;
  CUstream named_;
  const Work& work_;
  Stream* stream_ = nullptr;  ///< Null: nobody's business.
  Pacer::Turn turn_;
  std::uint64_t version_ = 0;  ///< Of the process, when the stream was touched.
};

/// What cuLaunchKernelEx is asked for.
Work work_of(const CUlaunchConfig* config, CUfunction function) noexcept;

/// A copy to the device, the earliest sign of a transparent job: in front of the driver's call.
void copy_begins(CUstream stream, bool synchronous) noexcept;

/// The record of the stream that the calling thread names so; null if this process has no client on
/// its device. `attach`: else only a stream that is known. Takes memory.
[[nodiscard]] Stream* stream_of(CUstream stream, bool attach);

}  // namespace sluice::intercept
