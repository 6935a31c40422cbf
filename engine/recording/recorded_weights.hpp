#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/memory/arena_weights.hpp"
#include "engine/recording/cuda_objects.hpp"

namespace sluice::engine {

/// Weights for a recording, which has none: memory of a given size, with numbers that each block
/// reads. A block that runs before its weights are in, or on memory of somebody else, gives a wrong
/// answer.
class RecordedWeights {
 public:
  /// The context of the device is current. name: decides the numbers. Throws base::RunError.
  RecordedWeights(int device, Placement placement, std::uint64_t bytes, std::size_t blocks,
                  const std::string& name);

  [[nodiscard]] ArenaWeights& weights() { return weights_; }
  /// Whether the address of the weights may be captured.
  [[nodiscard]] bool fixed() const { return placement_ == Placement::kFixed; }

  /// Forgets what earlier blocks have read. Asynchronous, as all that follow.
  void forget(CUstream stream);
  /// The work of a block on its weights: reads its first and last number.
  void read(CUstream stream, std::size_t block);
  /// Copies what the blocks have read to `to`, kPerBlock numbers for each block.
  void fetch(CUstream stream, std::uint64_t* to) const;

  static constexpr std::size_t kPerBlock = 2;
  [[nodiscard]] std::size_t numbers() const { return kPerBlock * block_ends_.size(); }

 private:
  Placement placement_;
  std::vector<std::uint64_t> block_ends_;
  ArenaWeights weights_;
  CudaMemory read_;
};

/// The number at a position of the weights of `name`.
[[nodiscard]] std::uint64_t recorded_weight(const std::string& name, std::uint64_t position);

}  // namespace sluice::engine
