#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/block_times.hpp"
#include "engine/store/model_store.hpp"
#include "engine/torch/cut.hpp"
#include "engine/torch/serve_options.hpp"

namespace sluice::engine {

/// A TorchScript model that is measured in blocks. Nothing of LibTorch in here. Every function may
/// throw base::RunError.
class SplitTarget {
 public:
  /// `options.cuts` is ignored. All times are of batches of `options.max_batch` items.
  SplitTarget(const StoredModel& model, const ServeOptions& options);
  ~SplitTarget();

  [[nodiscard]] std::size_t nodes() const;
  [[nodiscard]] const std::vector<Cut>& cuts() const;
  /// The time in ms from the start of the model to each of cuts() and to the end, from one pass.
  [[nodiscard]] std::vector<double> prefix_ms() const;
  /// The median time of the uncut model in ms.
  [[nodiscard]] double whole_ms(int repeats) const;
  /// The median time of each block, as a server would run them one by one, and of the uncut model,
  /// in turn with the blocks.
  [[nodiscard]] SplitTimes times(const std::vector<std::size_t>& cuts, int repeats) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::engine
