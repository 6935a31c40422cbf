#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

namespace sluice::server {

/// How long the blocks of a model take, by the number of items of an execution. Measured when the
/// model is loaded, and followed while it runs, because times rise under MPS and next to training.
/// Not thread-safe.
class Timing {
 public:
  /// Measured: an execution with `items` took these times, a time for each block. Call it at least
  /// once before anything else.
  void measured(std::size_t items, std::span<const std::uint64_t> block_ns);
  /// An execution ran: `count` blocks from `first` took `took_ns`.
  void ran(std::size_t items, std::size_t first, std::size_t count, std::uint64_t took_ns);

  /// The estimate for each block. Linear between the known sizes.
  [[nodiscard]] std::vector<std::uint64_t> block_ns(std::size_t items) const;
  [[nodiscard]] std::uint64_t whole_ns(std::size_t items) const;

 private:
  [[nodiscard]] std::vector<double> estimate(std::size_t items) const;
  std::map<std::size_t, std::vector<double>> by_items_;
};

/// The time of all blocks of an execution on an idle device, by its number of items. A model may be
/// loaded, and so measured, while others run. So every shorter execution corrects the time: other
/// work makes an execution longer, never shorter. Thread-safe.
class Limits {
 public:
  /// Call it at least once before anything else.
  void measured(std::size_t items, std::uint64_t whole_ns);
  /// All blocks of an execution took this long together, without the time between them.
  void ran(std::size_t items, std::uint64_t whole_ns);

  /// Linear between the known numbers of items, and in proportion beyond.
  [[nodiscard]] std::uint64_t ns(std::size_t items) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::size_t, std::uint64_t> by_items_;
};

}  // namespace sluice::server
