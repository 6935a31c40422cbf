#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
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

}  // namespace sluice::server
