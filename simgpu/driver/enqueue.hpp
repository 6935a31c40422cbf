#pragma once

#include <span>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/stream.hpp"

namespace sluice::simgpu {

// Gives the stream work: to its queue, or, while it captures, as one node of `type` to the graph.
CUresult enqueue(Stream& stream, CUgraphNodeType type, std::span<const Work> works);

}  // namespace sluice::simgpu
