#pragma once
#include <memory>

#include "engine/torch/network.hpp"

namespace sluice::engine {

/// `network`, captured into one CUDA graph on the current stream, which must not be the default
/// one: run() replays it, and returns the same outputs every time. Throws base::RunError if the
/// network cannot be captured (it waits for the GPU, or its work depends on what it computed).
[[nodiscard]] std::unique_ptr<Network> capture(std::unique_ptr<Network> network);

}  // namespace sluice::engine
