#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "intercept/client/client.hpp"
#include "intercept/driver/driver.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/pacing/durations.hpp"
#include "intercept/pacing/launch_draw.hpp"
#include "shm/board.hpp"

namespace sluice::intercept {

/// What a thread remembers of a stream: everything for a launch that only has to be counted.
/// Invalid if its version differs from the process's version.
struct alignas(64) RememberedStream {
  static constexpr std::uintptr_t kNone = ~std::uintptr_t{0};
  std::uintptr_t handle = kNone;
  std::uint64_t version = 0;
  const shm::Word* gate = nullptr;  ///< The gate of the slot, or a word that is always 0.
  /// Slot::outranked, or a word that is always 0 (not attached) or always 1 (durations are being
  /// learned).
  const shm::HalfWord* outranked = nullptr;
  /// The counter for the first entry; each further entry is a row behind. Null: a launch has more
  /// to do.
  shm::Word* counts = nullptr;
  shm::Count kind = shm::Count::kSize;  ///< The kind of launches that these count.
  bool exclusive = false;               ///< No other thread writes these counters.
  /// The bits of `outranked` for which a launch has more to do.
  std::uint32_t heeded = ~std::uint32_t{0};
  Stream* stream = nullptr;  ///< Null while the process is not attached.
};

/// The streams that a thread remembers. A handle has two places, so that two streams with the same
/// first place do not displace each other.
class RememberedStreams {
 public:
  [[nodiscard]] RememberedStream* find(CUstream stream) noexcept {
    const auto handle = reinterpret_cast<std::uintptr_t>(stream);
    const std::size_t place = first_place(stream);
    if (places_[place].handle == handle) return &places_[place];
    if (places_[place ^ 1U].handle == handle) return &places_[place ^ 1U];
    return nullptr;
  }
  /// An empty place for the stream: its own, or the place of the older of the two streams that have
  /// the places. The newer one keeps a place, so that two streams in turn both stay.
  [[nodiscard]] RememberedStream& place_for(CUstream stream) noexcept;
  /// For a thread that has another context now, and so other default streams.
  void forget_default_streams() noexcept;

  /// Passed from pass() to Launch: the counter that pass() increased; kSize if none.
  shm::Count counted = shm::Count::kSize;
  /// Where the launch that Launch looks at was called.
  const void* caller = nullptr;
  std::array<LaunchDraw, 2> draws;  ///< For kernels and for graphs.

 private:
  static constexpr unsigned kBits = 4;
  static std::size_t first_place(CUstream stream) noexcept {
    constexpr std::uint64_t kSpread = 0x9e37'79b9'7f4a'7c15;
    return reinterpret_cast<std::uintptr_t>(stream) * kSpread >> (64 - kBits);
  }
  std::array<RememberedStream, std::size_t{1} << kBits> places_{};
};

extern constinit thread_local RememberedStreams t_streams;

/// The hot path. True if the launch is counted and nothing else has to be done. Counts first and
/// then reads the version; whoever ends a job changes the version first and then reads the counts
/// (Jobs::nothing_since). So at least one of the two sees the other. The locked addition needs
/// nobody to order it, on any processor (order_launch_counts).
inline bool pass(Entry entry, CUstream stream) noexcept {
  const RememberedStream* known = t_streams.find(stream);
  if (known == nullptr || known->counts == nullptr) return false;
  constexpr std::size_t kRow = sizeof(shm::EntryCounters) / sizeof(shm::Word);
  shm::Word& count = known->counts[static_cast<std::size_t>(entry) * kRow];
  if (known->exclusive) [[likely]] {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  } else {
    count.fetch_add(1);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const bool due = t_streams.draws[draw_of(entry)].count() ||
                   known->version != g_process.version.load(std::memory_order_relaxed) ||
                   (known->outranked->load(std::memory_order_relaxed) & known->heeded) != 0 ||
                   known->gate->load(std::memory_order_relaxed) != 0;
  if (due) t_streams.counted = known->kind;
  return !due;
}

/// A launch that pass() did not let through: the part before the driver's call, and the part after.
/// Runs in the caller's thread; return codes, argument lifetimes and order stay the program's own.
class Launch {
 public:
  /// Holds and paces the launch. `stream` is never 0 for a per-thread entry (see named() in
  /// entries.hpp).
  Launch(Entry entry, CUstream stream, const Work& work, shm::Count counted) noexcept;
  /// Whether the launch must not reach the driver, because an order has to be obeyed first. The
  /// hook then returns refusal(), and does not call done().
  [[nodiscard]] bool refused() const noexcept { return refused_; }
  static constexpr CUresult kRefused = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  /// What a refused launch of `caller` returns: success for cuDNN. PyTorch catches an error of
  /// cuDNN and tries its other algorithms, for up to a second, and cuDNN's copy of the CUDA runtime
  /// reports the error again in a later call. The program's next launch of its own is refused.
  [[nodiscard]] static CUresult refusal(const void* caller) noexcept;

  /// Call after the driver's call.
  void done(CUresult result) noexcept;

 private:
  void prepare(shm::Count counted);
  [[nodiscard]] LaunchDraw& draw() const noexcept { return t_streams.draws[draw_of(entry_)]; }
  void count_as(shm::Count kind, shm::Count counted) noexcept;
  void hold_and_pace();
  /// Whether the launch must not reach the driver. Then it is taken out of the counts.
  [[nodiscard]] bool refuse() noexcept {
    if (!stream_->client->orders().refuse()) [[likely]]
      return false;
    uncount();
    return true;
  }
  void uncount() noexcept;

  Entry entry_;
  CUstream named_;
  const Work& work_;
  Stream* stream_ = nullptr;  ///< Null: nothing has to be done after the call.
  Pacer::Place place_;
  shm::Count counted_ = shm::Count::kSize;  ///< How the launch was counted.
  bool refused_ = false;
  std::uint32_t drawn_;        ///< For how many launches this one stands; 0 if it is not drawn.
  std::uint64_t version_ = 0;  ///< The process's version when the stream was touched.
};

/// Names the work: the kernel with its grid, or the graph.
[[nodiscard]] std::uint64_t kind_of(const Work& work) noexcept;

/// The work of a cuLaunchKernelEx call.
Work work_of(const CUlaunchConfig* config, CUfunction function) noexcept;

/// Call before a copy to the device, which is the earliest sign of a transparent job.
void copy_begins(CUstream stream, bool synchronous) noexcept;

/// Call after the driver's call of a launch that pass() let through, if the version has changed
/// meanwhile: the job may have ended before the work began.
void work_given(CUstream stream) noexcept;

/// The record of the stream to which the calling thread refers by this handle. Null if the process
/// has no client on the stream's device. Without `attach`, only known streams are found. Allocates.
[[nodiscard]] Stream* stream_of(CUstream stream, bool attach);

}  // namespace sluice::intercept
