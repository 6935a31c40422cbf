#pragma once

#include <span>

#include "simgpu/channel/layout.hpp"
#include "simgpu/driver/graph.hpp"
#include "simgpu/driver/stream.hpp"

namespace sluice::simgpu {

// Adds work to the stream's queue or, while the stream captures, a node to the graph.
CUresult enqueue(Stream& stream, NodeContent content);

// Adds work that cannot be captured.
CUresult submit(Stream& stream, std::span<const Work> works, std::uint64_t* sequence = nullptr);

// The content of a node with one command.
inline NodeContent content_of(CUgraphNodeType type, const Work& work) {
  NodeContent content;
  content.type = type;
  content.works.push_back(work);
  return content;
}

}  // namespace sluice::simgpu
