#pragma once
#include <cstdint>
#include <memory>

#include "engine/placement.hpp"
#include "engine/recording/recording.hpp"
#include "engine/served_model.hpp"

namespace sluice::engine {

struct RecordingOptions {
  std::size_t blocks = 0;  ///< 0 and 1: whole.
  int device = 0;          ///< Index of the GPU.
  bool simulated = false;  ///< The driver is the simulated one.
  /// Device memory that the model takes as its weights; 0: none.
  std::uint64_t weight_bytes = 0;
  Placement placement = Placement::kFixed;
};

/// A recording behind a server: any input, the recorded GPU work in `blocks` blocks of about the
/// same duration, each one CUDA graph. The duration does not depend on the number of items.
/// input0 is FP32 of any size, output0 (FP32) the recorded GPU time in ms; output1 (UINT64), if
/// there are weights, the first and last number of the weights of each block (recorded_weight()).
/// The weights are loaded. Throws base::RunError.
[[nodiscard]] std::unique_ptr<ServedModel> serve_recording(Recording recording,
                                                           const RecordingOptions& options);

/// The index of the first kernel of each block but the first, so that the blocks last about the
/// same. At most one block for each kernel.
[[nodiscard]] std::vector<std::size_t> even_cuts(const Recording& recording, std::size_t blocks);

}  // namespace sluice::engine
