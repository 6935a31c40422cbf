#pragma once
#include <memory>

#include "engine/recording/recording.hpp"
#include "engine/served_model.hpp"

namespace sluice::engine {

/// A recording behind a server: any input, the recorded GPU work in `blocks` blocks of about the
/// same duration, each one CUDA graph. The duration does not depend on the number of items.
/// input0 is FP32 of any size, output0 (FP32) the recorded GPU time in ms. device: index of the
/// GPU. simulated: the driver is the simulated one. Throws base::RunError.
[[nodiscard]] std::unique_ptr<ServedModel> serve_recording(Recording recording, std::size_t blocks,
                                                           int device, bool simulated);

/// The index of the first kernel of each block but the first, so that the blocks last about the
/// same. At most one block for each kernel.
[[nodiscard]] std::vector<std::size_t> even_cuts(const Recording& recording, std::size_t blocks);

}  // namespace sluice::engine
