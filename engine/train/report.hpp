#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::engine {

/// What happened in one epoch.
struct EpochCounts {
  std::size_t batches = 0;
  std::size_t tried = 0;   ///< Micro-batches, also the dropped ones.
  std::size_t killed = 0;  ///< Also the micro-batches of an epoch that was dropped and begun again.
  std::size_t finished = 0;
  std::size_t micro_batch_size = 0;  ///< The last one.
  std::uint64_t waited_ns = 0;  ///< For a grant that holds one item, or for the end of a sleep.
};

/// An order that was obeyed, and the micro-batch sizes before and after.
struct Adjustment {
  std::size_t batch = 0;  ///< Its index in the epoch.
  std::size_t before = 0;
  std::size_t after = 0;
  std::uint64_t freed_ns = 0;   ///< From the end of the micro-batch until the memory was free.
  std::uint64_t waited_ns = 0;  ///< Until the next micro-batch could begin.
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
};

/// The line of the published trainers:
/// `[ResNet epoch 0] 12.345s | batch cnt 62 avg 198.0ms | try 70 kill 8 finish 62 | ...`
[[nodiscard]] std::string epoch_line(const std::string& name, std::size_t epoch,
                                     const EpochCounts& counts, std::size_t batch_size,
                                     std::uint64_t took_ns, std::uint64_t most_bytes);

/// The line of the published trainers:
/// `batch 3 adjust : bs 16 -> 13 | 4.1ms | 0.2ms | gpu_mem 9.87Gb -> 7.12Gb`
[[nodiscard]] std::string adjust_line(const Adjustment& adjustment);

}  // namespace sluice::engine
