#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "sluice/sluice.h"

namespace sluice::engine {

/// How many items of a batch fit into a grant: a line through what micro-batches took,
/// bytes = base + slope * items, fitted by least squares. Bytes throughout.
///
/// A peak consists of what was there when the micro-batch began (parameters, optimizer state,
/// gradients) and of what the micro-batch added. Only the second part is fitted, because the first
/// part grows with the first optimizer step. tools/python/sluice/_memory_fit.py does the same.
class MemoryFit {
 public:
  struct Line {
    std::uint64_t base = 0;
    std::uint64_t slope = 0;
    friend bool operator==(const Line&, const Line&) = default;
  };

  /// A micro-batch began with `resident` bytes and held `peak` at most.
  void saw(std::size_t items, std::uint64_t resident, std::uint64_t peak);
  /// Between two micro-batches, at most `peak` bytes were held, such as in optimizer steps.
  void saw_outside(std::uint64_t peak);
  void batch_ended();
  /// An allocation failed with this many items under this grant: tries fewer until it grows.
  void lacked_memory(std::size_t items, std::uint64_t grant);

  /// None before anything was measured.
  [[nodiscard]] std::optional<Line> fit() const;

  /// No larger grant comes: the line or an earlier failure may be wrong. One item is tried.
  void doubt(std::uint64_t grant) { doubted_ = std::min(doubted_, grant); }

  /// The items of the next micro-batch, 0 to `most`: as many as the grant holds. Sizes are
  /// multiples of a sixteenth of `most`, because libraries prepare for every new size.
  [[nodiscard]] std::size_t items(std::uint64_t grant, std::size_t most);

  /// A size that the fit still needs: 1 or half. None if it has both.
  [[nodiscard]] std::optional<std::size_t> to_measure(std::size_t most) const;

 private:
  struct Cap {
    std::uint64_t grant = 0;
    std::size_t items = 0;
  };

  std::map<std::size_t, double> added_;  ///< By number of items, the last peak.
  std::uint64_t resident_last_ = 0;      ///< Greatest of the last batch.
  std::uint64_t resident_now_ = 0;       ///< Greatest of this batch.
  std::uint64_t outside_ = 0;
  std::uint64_t doubted_ = SLUICE_NO_LIMIT;  ///< From this grant on, one item is tried.
  bool warm_ = false;
  std::optional<Cap> cap_;
};

}  // namespace sluice::engine
