// Graphs that allocate memory: their nodes can be neither removed nor cloned.
#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

constexpr std::size_t kBytes = kWords * sizeof(std::uint32_t);

void need_pools() {
  if (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) {
    throw Skip("the GPU has no memory pools");
  }
}

CUDA_MEM_ALLOC_NODE_PARAMS words() {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = kBytes;
  return params;
}

void nodes_by_hand(Bench& bench) {
  need_pools();
  const Stream stream = new_stream();
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const CUgraphNode first = add(graph, {}, link(bench.x(), 1, 1));
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = words();
  CUgraphNode allocated = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemAllocNode(&allocated, graph, &first, 1, &allocation));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = allocation.dptr;
  fill.value = 5;
  fill.elementSize = 4;
  fill.width = kWords;
  fill.height = 1;
  CUcontext context = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&context));
  CUgraphNode filled = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemsetNode(&filled, graph, &allocated, 1, &fill, context));
  CUgraphNode last = add(graph, {filled}, link(allocation.dptr, 2, 6));
  last = add(graph, {last}, Combine{bench.x(), allocation.dptr});
  CUgraphNode freed = nullptr;
  SLUICE_MUST(newer().cuGraphAddMemFreeNode(&freed, graph, &last, 1, allocation.dptr));
  add(graph, {freed}, link(bench.x(), 3, 4));
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 5);
  bench.look();
}

/// Captures a graph that allocates its memory and works on two streams.
Graph capture_allocating(Bench& bench, CUstream stream, std::uint32_t seed) {
  const Stream fork = new_stream();
  begin(stream);
  chain(stream, bench.x(), seed, 4);
  CUdeviceptr own = 0;
  SLUICE_MUST(newer().cuMemAllocAsync(&own, kBytes, stream));
  SLUICE_MUST(cuMemcpyDtoDAsync(own, bench.x(), kBytes, stream));
  join(fork, stream);
  chain(fork, own, seed + 1);
  chain(stream, bench.x(), seed + 2);
  join(stream, fork);
  launch(stream, Combine{bench.x(), own});
  SLUICE_MUST(newer().cuMemFreeAsync(own, stream));
  chain(stream, bench.x(), seed + 3, 3);
  return end(stream);
}

void captured_allocation(Bench& bench) {
  need_pools();
  const Stream stream = new_stream();
  for (std::uint32_t i = 0; i < 2; ++i) {
    const Graph graph = capture_allocating(bench, stream, 10 * i);
    const Exec exec = instantiate(graph);
    bench.launch(exec, stream, 2);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
  bench.look();
}

// The driver must refuse the same operations on such a graph with the same errors, and the graph
// must still work.
void refusals(Bench& bench) {
  need_pools();
  const Stream stream = new_stream();
  const Graph graph = capture_allocating(bench, stream, 1);
  const Exec exec = instantiate(graph);
  Exec second;
  bench.note("second", cuGraphInstantiate(second.out(), graph, 0));
  Graph clone;
  const CUresult cloned = cuGraphClone(clone.out(), graph);
  bench.note("clone", cloned);
  bench.launch(exec, stream, 3);
  bench.look();
}

// Memory that a graph allocates, and that the next launch (AUTO_FREE) or the stream frees.
void freed_elsewhere(Bench& bench) {
  need_pools();
  const Stream stream = new_stream();
  begin(stream);
  chain(stream, bench.x(), 1, 4);
  CUdeviceptr own = 0;
  SLUICE_MUST(newer().cuMemAllocAsync(&own, kBytes, stream));
  SLUICE_MUST(cuMemsetD32Async(own, 11, kWords, stream));
  chain(stream, own, 2);
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  for (int i = 0; i < 4; ++i) {
    bench.launch(exec, stream);
    launch(stream, Combine{bench.x(), own});
  }
  SLUICE_MUST(newer().cuMemFreeAsync(own, stream));
  SLUICE_MUST(cuStreamSynchronize(stream));
  bench.look();
}

// Allocations of the stream between graphs.
void in_the_stream(Bench& bench) {
  need_pools();
  const Stream stream = new_stream();
  const Graph graph = captured(bench.x(), 1);
  const Exec exec = instantiate(graph);
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr own = 0;
    SLUICE_MUST(newer().cuMemAllocAsync(&own, kBytes, stream));
    bench.launch(exec, stream);
    SLUICE_MUST(cuMemcpyDtoDAsync(own, bench.x(), kBytes, stream));
    chain(stream, own, 2, 4);
    launch(stream, Combine{bench.y(), own});
    SLUICE_MUST(newer().cuMemFreeAsync(own, stream));
  }
  bench.look();
}

constexpr Case kCases[] = {
    {"memory.nodes_by_hand", nodes_by_hand}, {"memory.captured", captured_allocation},
    {"memory.refusals", refusals},           {"memory.freed_elsewhere", freed_elsewhere},
    {"memory.in_the_stream", in_the_stream},
};

}  // namespace

std::span<const Case> memory_cases() { return kCases; }

}  // namespace sluice::graphs
