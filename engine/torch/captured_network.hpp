#pragma once
#include <memory>

#include "engine/torch/network.hpp"

namespace sluice::engine {

/// Captures `network` into one CUDA graph on the current stream, which must not be the default
/// stream. run() then replays the graph and always returns the same outputs. Throws base::RunError
/// if the network cannot be captured, for example because it waits for the GPU.
[[nodiscard]] std::unique_ptr<Network> capture(std::unique_ptr<Network> network);

}  // namespace sluice::engine
