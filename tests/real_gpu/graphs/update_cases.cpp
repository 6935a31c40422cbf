// Executable graphs that are changed after instantiation.
#include <algorithm>

#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

/// Updates `exec`. If the driver refuses, instantiates again, as programs do.
void update(Bench& bench, Exec& exec, CUgraph graph) {
  CUgraphExecUpdateResultInfo info{};
  const Content before = content_of(graph);
  bench.note("update", cuGraphExecUpdate(exec, graph, &info));
  must_be(graph, before);
  bench.note("why", static_cast<std::size_t>(info.result));
  if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) exec = instantiate(graph);
}

// A second capture of the same code must give the same graph, whatever was learned in between.
void same_code_other_arguments(Bench& bench) {
  const Stream stream = new_stream();
  const Graph first = captured(bench.x(), 1);
  Exec exec = instantiate(first);
  for (std::uint32_t i = 0; i < 5; ++i) {
    bench.launch(exec, stream);
    const Graph next = captured(bench.x(), 2 + i);
    update(bench, exec, next);
    bench.launch(exec, stream);
  }
  bench.look();
}

// The duration of a kernel is learned by its grid too, and an update may change the grid.
void other_grid(Bench& bench) {
  const Stream stream = new_stream();
  const auto capture = [&](std::uint32_t seed, unsigned threads) {
    begin(stream);
    for (std::uint32_t i = 0; i < 8; ++i) {
      Step step = link(bench.x(), seed, i);
      step.threads = threads;
      launch(stream, step);
    }
    return end(stream);
  };
  const Graph first = capture(1, 256);
  Exec exec = instantiate(first);
  for (const unsigned threads : {64U, 128U, 256U}) {
    bench.launch(exec, stream);
    const Graph next = capture(threads, threads);
    update(bench, exec, next);
    bench.launch(exec, stream);
  }
  bench.look();
}

// Built node by node, in two orders.
void built_by_hand(Bench& bench) {
  const Stream stream = new_stream();
  const auto build = [&](std::uint32_t seed, bool last_first) {
    Graph graph;
    SLUICE_MUST(cuGraphCreate(graph.out(), 0));
    CUgraphNode last = nullptr;
    if (last_first) last = add(graph, {}, link(bench.x(), seed, 9));
    CUgraphNode before = add(graph, {}, link(bench.x(), seed, 0));
    for (std::uint32_t i = 1; i < 9; ++i) before = add(graph, {before}, link(bench.x(), seed, i));
    if (last == nullptr) {
      add(graph, {before}, link(bench.x(), seed, 9));
    } else {
      SLUICE_MUST(newer().cuGraphAddDependencies(graph, &before, &last, nullptr, 1));
    }
    return graph;
  };
  const Graph first = build(1, false);
  Exec exec = instantiate(first);
  for (std::uint32_t i = 0; i < 4; ++i) {
    bench.launch(exec, stream);
    const Graph next = build(3 + i, i % 2 != 0);
    update(bench, exec, next);
    bench.launch(exec, stream);
  }
  bench.look();
}

void with_forks(Bench& bench) {
  const Stream stream = new_stream();
  const Stream fork = new_stream();
  const auto capture = [&](std::uint32_t seed) {
    begin(stream);
    chain(stream, bench.x(), seed, 3);
    join(fork, stream);
    chain(fork, bench.y(), seed + 1);
    chain(stream, bench.x(), seed + 2);
    join(stream, fork);
    launch(stream, Combine{bench.x(), bench.y(), 2 * seed + 1});
    return end(stream);
  };
  const Graph first = capture(1);
  Exec exec = instantiate(first);
  for (std::uint32_t i = 0; i < 4; ++i) {
    bench.launch(exec, stream);
    const Graph next = capture(10 * i + 7);
    update(bench, exec, next);
    bench.launch(exec, stream);
  }
  bench.look();
}

// Captured before the duration of a kernel is known, and updated from a capture after that.
void captured_before_learned(Bench& bench) {
  const Stream stream = new_stream();
  const auto capture = [&](std::uint32_t seed) {
    begin(stream);
    for (std::uint32_t i = 0; i < 6; ++i) {
      Step step = link(bench.x(), seed, i);
      if (i % 2 == 0) step.kernel = Kernel::kUnseen;
      step.threads = 64U << (bench.round() % 3);
      launch(stream, step);
    }
    return end(stream);
  };
  const Graph first = capture(1);
  Exec exec = instantiate(first);
  bench.launch(exec, stream, 2);
  for (std::uint32_t i = 0; i < 40; ++i) {
    Step step{Kernel::kUnseen, bench.y(), 3, i};
    step.threads = 64U << (bench.round() % 3);
    launch(stream, step);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
  const Graph second = capture(2);
  update(bench, exec, second);
  bench.launch(exec, stream, 2);
  bench.look();
}

// The same kernels with durations that differ from the learned ones.
void other_lengths(Bench& bench) {
  const Stream stream = new_stream();
  const auto capture = [&](std::uint64_t ns) {
    begin(stream);
    for (std::uint32_t i = 0; i < 8; ++i) {
      Step step = link(bench.x(), static_cast<std::uint32_t>(ns / 1000), i);
      step.ns = i % 3 == 0 ? ns : 10'000;
      launch(stream, step);
    }
    return end(stream);
  };
  const Graph first = capture(20'000);
  Exec exec = instantiate(first);
  for (std::uint64_t i = 1; i < 4; ++i) {
    bench.launch(exec, stream);
    const Graph next = capture(200'000 * i);
    update(bench, exec, next);
    bench.launch(exec, stream);
  }
  bench.look();
}

void other_topology(Bench& bench) {
  const Stream stream = new_stream();
  const Graph first = captured(bench.x(), 1, 6);
  Exec exec = instantiate(first);
  bench.launch(exec, stream);
  const Graph longer = captured(bench.x(), 2, 9);
  update(bench, exec, longer);
  bench.launch(exec, stream, 2);
  bench.look();
}

/// The kernel nodes of a captured chain, in the order of the chain.
std::vector<CUgraphNode> chain_nodes(CUgraph graph) {
  std::vector<CUgraphNode> nodes = nodes_of(graph, CU_GRAPH_NODE_TYPE_KERNEL);
  std::ranges::sort(nodes, {}, [](CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS params{};
    SLUICE_MUST(cuGraphKernelNodeGetParams(node, &params));
    return addend_of(params);
  });
  return nodes;
}

void set_in_executable(Bench& bench) {
  const Stream stream = new_stream();
  const Graph graph = captured(bench.x(), 1);
  const std::vector<CUgraphNode> nodes = chain_nodes(graph);
  bench.note("kernels", nodes.size());
  const Exec exec = instantiate(graph);
  for (std::uint32_t i = 0; i < 5; ++i) {
    bench.launch(exec, stream);
    Step step = link(bench.x(), 50 + i, i);
    step.ns = 30'000 + 150'000 * i;
    Call call(step);
    const CUDA_KERNEL_NODE_PARAMS params = call.node_params();
    SLUICE_MUST(newer().cuGraphExecKernelNodeSetParams(exec, nodes.at(i % nodes.size()), &params));
    bench.launch(exec, stream);
  }
  bench.look();
}

// Changes in the graph itself, for later executables and for updates from the graph.
void set_in_graph(Bench& bench) {
  const Stream stream = new_stream();
  const Graph graph = captured(bench.x(), 1);
  const std::vector<CUgraphNode> nodes = chain_nodes(graph);
  Exec exec = instantiate(graph);
  bench.launch(exec, stream);
  for (std::uint32_t i = 0; i < 3; ++i) {
    Call call(link(bench.x(), 60 + i, 2 * i));
    const CUDA_KERNEL_NODE_PARAMS params = call.node_params();
    SLUICE_MUST(newer().cuGraphKernelNodeSetParams(nodes.at(i), &params));
    update(bench, exec, graph);
    bench.launch(exec, stream);
    const Exec fresh = instantiate(graph);
    bench.launch(fresh, stream);
  }
  bench.look();
}

void switched_off(Bench& bench) {
  const Stream stream = new_stream();
  const Graph graph = captured(bench.x(), 1);
  const std::vector<CUgraphNode> nodes = chain_nodes(graph);
  const Exec exec = instantiate(graph);
  for (std::size_t i = 0; i < 6; ++i) {
    SLUICE_MUST(newer().cuGraphNodeSetEnabled(exec, nodes.at(i), 0));
    bench.launch(exec, stream);
    SLUICE_MUST(newer().cuGraphNodeSetEnabled(exec, nodes.at(i), 1));
  }
  bench.launch(exec, stream);
  bench.look();
}

void fills_and_copies(Bench& bench) {
  const Stream stream = new_stream();
  begin(stream);
  chain(stream, bench.x(), 1, 4);
  SLUICE_MUST(cuMemsetD32Async(bench.y(), 7, kWords / 2, stream));
  chain(stream, bench.y(), 2, 4);
  SLUICE_MUST(cuMemcpyDtoDAsync(bench.z(), bench.x(), kWords * sizeof(std::uint32_t), stream));
  launch(stream, Combine{bench.z(), bench.y()});
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  const std::vector<CUgraphNode> fills = nodes_of(graph, CU_GRAPH_NODE_TYPE_MEMSET);
  const std::vector<CUgraphNode> copies = nodes_of(graph, CU_GRAPH_NODE_TYPE_MEMCPY);
  bench.note("fills", fills.size());
  bench.note("copies", copies.size());
  CUcontext context = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&context));
  for (unsigned i = 0; i < 4; ++i) {
    bench.launch(exec, stream);
    CUDA_MEMSET_NODE_PARAMS fill{};
    SLUICE_MUST(newer().cuGraphMemsetNodeGetParams(fills.at(0), &fill));
    fill.value = 100 + i;
    SLUICE_MUST(newer().cuGraphExecMemsetNodeSetParams(exec, fills.at(0), &fill, context));
    CUDA_MEMCPY3D copy{};
    SLUICE_MUST(newer().cuGraphMemcpyNodeGetParams(copies.at(0), &copy));
    copy.srcDevice = i % 2 == 0 ? bench.y() : bench.x();
    SLUICE_MUST(newer().cuGraphExecMemcpyNodeSetParams(exec, copies.at(0), &copy, context));
    bench.launch(exec, stream);
  }
  bench.look();
}

constexpr Case kCases[] = {
    {"update.same_code_other_arguments", same_code_other_arguments},
    {"update.other_grid", other_grid},
    {"update.built_by_hand", built_by_hand},
    {"update.with_forks", with_forks},
    {"update.captured_before_learned", captured_before_learned},
    {"update.other_lengths", other_lengths},
    {"update.other_topology", other_topology},
    {"update.set_in_executable", set_in_executable},
    {"update.set_in_graph", set_in_graph},
    {"update.switched_off", switched_off},
    {"update.fills_and_copies", fills_and_copies},
};

}  // namespace

std::span<const Case> update_cases() { return kCases; }

}  // namespace sluice::graphs
