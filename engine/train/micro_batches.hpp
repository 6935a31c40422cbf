#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>

#include "engine/train/droppable.hpp"
#include "engine/train/memory_fit.hpp"
#include "engine/train/report.hpp"

namespace sluice::engine {

/// Thrown out of a batch after an order to go back to the start of the epoch.
struct EpochDropped {};

/// Runs batches as micro-batches whose sizes follow the grant, and obeys orders (sluice.h). A
/// micro-batch counts whole, or it leaves no trace. Not thread-safe.
///
/// Outside of a micro-batch the process counts as critical, so that no launch is refused there.
class MicroBatches {
 public:
  struct Options {
    std::size_t batch = 1;            ///< Items of a batch.
    std::size_t largest = 1;          ///< Most items of a micro-batch.
    bool restores_epochs = false;     ///< Else an order to drop the epoch is one to sleep.
    std::function<void()> on_wait{};  ///< Called every 200 ms of a wait. May throw.
    /// Once for each wait for a grant that holds one item; with the grant and what is held.
    std::function<void(std::uint64_t grant, std::uint64_t held)> on_lack{};
    std::function<void()> on_sleep{};             ///< Once for each sleep.
    std::uint64_t say_after_ns = 10'000'000'000;  ///< Of a wait or a sleep, for the last two.
    std::function<void(const Adjustment&)> on_adjust{};
  };

  /// `work` must outlive the object.
  MicroBatches(Droppable& work, Options options);

  /// All micro-batches of one batch. Waits while the grant holds not even one item. Throws
  /// EpochDropped, what `on_wait` throws, and errors of `work` that no order and no grant explain.
  void run_batch();

  /// Obeys a pending order, if there is one. Throws EpochDropped and what `on_wait` throws.
  void obey_pending();

  /// The counts since the last call.
  [[nodiscard]] EpochCounts take_counts();

  [[nodiscard]] std::uint64_t most_bytes() const { return most_bytes_; }

 private:
  std::size_t next_size(std::size_t left);
  bool run_micro_batch(std::size_t start, std::size_t items);
  bool may_drop_for(const std::exception& error, std::size_t items);
  std::uint64_t allowed(std::uint64_t order);
  void free_memory(std::uint64_t order);
  void obey(std::uint64_t order);
  void sleep();
  bool wait_once();
  void note_adjusted(std::size_t size);
  void publish();
  std::optional<MemoryUse> memory();

  Droppable& work_;
  Options options_;
  MemoryFit line_;
  EpochCounts counts_;
  std::optional<MemoryFit::Line> published_;
  std::optional<Adjustment> adjustment_;  ///< Begun, and its new size not known yet.
  std::uint64_t freed_at_ns_ = 0;
  std::uint64_t held_anyway_ = 0;     ///< After all was freed that could be.
  std::uint64_t refused_ = 0;         ///< sluice_memory_refused() when the micro-batch began.
  int library_errors_ = 0;            ///< Since the last micro-batch that counts.
  std::uint64_t lacks_since_ns_ = 0;  ///< Memory for one item; none has counted since then. 0: not.
  bool said_lack_ = false;
  int stale_errors_ = 0;  ///< That may still come from the launches of a dropped micro-batch.
  std::uint64_t most_bytes_ = 0;
};

}  // namespace sluice::engine
