#pragma once
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

/// For a graph that could not be instantiated: takes our wait nodes out of it and out of the graphs
/// inside it, and ties what was before each to what was behind it. Ours are known by the address
/// they wait on, because a clone's nodes, and those of a child, are not the ones we put there.
/// False if there is none.
bool take_wait_nodes_out(CUgraph graph) noexcept;

/// The bodies of a conditional node, which the driver tells only when it is made.
void note_bodies(CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS& params) noexcept;

/// Such an executable holds no waits though graphs captured like its own do: an update of it finds
/// the same nodes only in a graph that has lost its waits too.
void note_ungated(CUgraphExec exec, bool bare) noexcept;
bool is_ungated(CUgraphExec exec) noexcept;

}  // namespace sluice::intercept
