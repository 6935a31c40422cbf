// Launches of executable graphs, and the work inside them.
#include <cstdio>

#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

void several_streams(Bench& bench) {
  const Stream streams[] = {new_stream(), new_stream(), new_stream()};
  const Graph graph = captured(bench.x(), 1);
  const Exec exec = instantiate(graph);
  for (std::uint32_t i = 0; i < 9; ++i) {
    const Stream& stream = streams[i % 3];
    bench.launch(exec, stream);
    launch(stream, link(bench.x(), 2, i));
    join(streams[(i + 1) % 3], stream);
  }
  bench.look();
}

// Two executables of one graph, launched in turn.
void twice_instantiated(Bench& bench) {
  const Stream first = new_stream();
  const Stream second = new_stream();
  const Graph graph = captured(bench.x(), 1);
  const Exec one = instantiate(graph);
  const Exec two = instantiate(graph);
  for (int i = 0; i < 4; ++i) {
    bench.launch(one, first);
    join(second, first);
    bench.launch(two, second);
    join(first, second);
  }
  bench.look();
}

void long_queue(Bench& bench) {
  const Stream stream = new_stream();
  const Graph graph = captured(bench.x(), 1, 6);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 60);
  bench.look();
}

void between_launches(Bench& bench) {
  const Stream stream = new_stream();
  const Graph graph = captured(bench.x(), 1, 5);
  const Exec exec = instantiate(graph);
  for (std::uint32_t i = 0; i < 6; ++i) {
    chain(stream, bench.x(), 10 + i, 1 + i % 4);
    bench.launch(exec, stream);
    if (i % 2 == 0) SLUICE_MUST(cuStreamSynchronize(stream));
  }
  bench.look();
}

// Graphs are destroyed while they run, and other graphs get their handles. What was learned about
// the first must not apply to the second.
void handles_used_again(Bench& bench) {
  const Stream stream = new_stream();
  for (std::uint32_t i = 0; i < 12; ++i) {
    if (i % 3 == 2) {
      Graph graph;
      SLUICE_MUST(cuGraphCreate(graph.out(), 0));
      const CUgraphNode node = add(graph, {}, link(bench.x(), 5 + i, 6));
      add(graph, {node}, link(bench.x(), 6 + i, 1));
      const Exec exec = instantiate(graph);
      graph.reset();
      bench.launch(exec, stream, 2);
    } else {
      const Graph graph = captured(bench.x(), 1 + i, i % 2 == 0 ? 2 : 9);
      const Exec exec = instantiate(graph);
      bench.launch(exec, stream, 2);
    }
    if (i % 4 == 3) SLUICE_MUST(cuStreamSynchronize(stream));
  }
  bench.look();
}

/// Instantiates a graph for launch from the device, uploads it, and launches it from the host.
void launch_uploaded(Bench& bench, CUgraph graph) {
  const Stream stream = new_stream();
  Exec exec;
  const CUresult made =
      cuGraphInstantiate(exec.out(), graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
  bench.note("instantiate", made);
  if (made != CUDA_SUCCESS) return;
  SLUICE_MUST(cuGraphUpload(exec, stream));
  bench.launch(exec, stream, 4);
  SLUICE_MUST(cuStreamSynchronize(stream));
}

void for_the_device_by_hand(Bench& bench) {
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const CUgraphNode first = add(graph, {}, link(bench.x(), 1, 1));
  add(graph, {first}, link(bench.x(), 2, 6));
  launch_uploaded(bench, graph);
  bench.look();
}

// The driver refuses this graph with our waits inside, and accepts it without them.
void for_the_device_captured(Bench& bench) {
  const Stream stream = new_stream();
  const Stream fork = new_stream();
  begin(stream);
  chain(stream, bench.x(), 1);
  join(fork, stream);
  chain(fork, bench.y(), 2);
  chain(stream, bench.x(), 3);
  join(stream, fork);
  launch(stream, Combine{bench.x(), bench.y()});
  const Graph graph = end(stream);
  launch_uploaded(bench, graph);
  bench.look();
}

// The waits are in a child graph.
void for_the_device_with_child(Bench& bench) {
  Graph graph;
  SLUICE_MUST(cuGraphCreate(graph.out(), 0));
  const CUgraphNode first = add(graph, {}, link(bench.x(), 1, 1));
  CUgraphNode child = nullptr;
  {
    const Graph inner = captured(bench.x(), 2);
    SLUICE_MUST(cuGraphAddChildGraphNode(&child, graph, &first, 1, inner));
  }
  add(graph, {child}, link(bench.x(), 3, 4));
  launch_uploaded(bench, graph);
  bench.look();
}

// A clone of a captured graph, whose capture nobody observed.
void for_the_device_cloned(Bench& bench) {
  const Graph graph = captured(bench.x(), 1);
  Graph clone;
  SLUICE_MUST(cuGraphClone(clone.out(), graph));
  launch_uploaded(bench, clone);
  launch_uploaded(bench, graph);
  bench.look();
}

// An executable that got no waits is updated from captures of the same code.
void for_the_device_updated(Bench& bench) {
  const Stream stream = new_stream();
  const Graph first = captured(bench.x(), 1);
  const Exec exec = instantiate(first, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
  for (std::uint32_t i = 0; i < 3; ++i) {
    SLUICE_MUST(cuGraphUpload(exec, stream));
    bench.launch(exec, stream, 2);
    SLUICE_MUST(cuStreamSynchronize(stream));
    const Graph next = captured(bench.x(), 2 + i);
    CUgraphExecUpdateResultInfo info{};
    bench.note("update", cuGraphExecUpdate(exec, next, &info));
  }
  SLUICE_MUST(cuGraphUpload(exec, stream));
  bench.launch(exec, stream, 2);
  bench.look();
}

// First a host launch, then the same graph for the device; the first executable is used further.
void for_both(Bench& bench) {
  const Stream stream = new_stream();
  const Graph graph = captured(bench.x(), 1);
  Exec exec = instantiate(graph);
  bench.launch(exec, stream, 2);
  SLUICE_MUST(cuStreamSynchronize(stream));
  launch_uploaded(bench, graph);
  bench.launch(exec, stream, 2);
  CUgraphExecUpdateResultInfo info{};
  if (const CUresult updated = cuGraphExecUpdate(exec, graph, &info); updated != CUDA_SUCCESS) {
    std::fprintf(stderr, "launch.for_both: update: %s, made anew\n", name_of(updated).c_str());
    exec = instantiate(graph);
  }
  bench.launch(exec, stream, 2);
  bench.look();
}

// Kernels that may start before the previous kernel has ended, in a graph and without one.
void programmatic(Bench& bench) {
  const Stream stream = new_stream();
  const auto work = [&](std::uint32_t seed) {
    for (std::uint32_t i = 0; i < 12; ++i) {
      Step step = link(bench.x(), seed, i);
      if (i % 4 == 3) {
        launch(stream, step);
      } else {
        step.kernel = Kernel::kProgrammatic;
        step.ns = i % 3 == 0 ? 150'000 : 20'000;
        SLUICE_MUST(Call(step).launch_programmatic(stream));
      }
    }
  };
  work(1);
  begin(stream);
  work(2);
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 4);
  work(3);
  bench.look();
}

// A fork waits for an event that the kernel itself triggers. Only a kernel may follow that edge.
void programmatic_event(Bench& bench) {
  const Stream stream = new_stream();
  const Stream fork = new_stream();
  const Event event = new_event();
  begin(stream);
  chain(stream, bench.x(), 1, 4);
  Step step = link(bench.x(), 2, 0);
  step.kernel = Kernel::kProgrammatic;
  bench.note("launch", Call(step).launch_with_event(stream, event));
  bench.note("wait", cuStreamWaitEvent(fork, event, CU_EVENT_WAIT_DEFAULT));
  step.x = bench.y();
  bench.note("behind", Call(step).launch(fork));
  for (std::uint32_t i = 0; i < 6; ++i) {
    bench.note("fork", Call(link(bench.y(), 3, i)).launch(fork));
    bench.note("main", Call(link(bench.x(), 4, i)).launch(stream));
  }
  const Event joined = new_event();
  bench.note("record", cuEventRecord(joined, fork));
  bench.note("join", cuStreamWaitEvent(stream, joined, CU_EVENT_WAIT_DEFAULT));
  bench.note("combine", Call(Combine{bench.x(), bench.y()}).launch(stream));
  Graph graph;
  const CUresult ended = cuStreamEndCapture(stream, graph.out());
  bench.note("end", ended);
  if (ended == CUDA_SUCCESS) {
    const Exec exec = instantiate(graph);
    bench.launch(exec, stream, 4);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
  chain(stream, bench.x(), 5);
  bench.look();
}

void cooperative(Bench& bench) {
  const Stream stream = new_stream();
  begin(stream);
  for (std::uint32_t i = 0; i < 8; ++i) {
    Call call(link(bench.x(), 1, i));
    SLUICE_MUST(i % 2 == 0 ? call.launch_cooperative(stream) : call.launch(stream));
  }
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 4);
  bench.look();
}

constexpr Case kCases[] = {
    {"launch.several_streams", several_streams},
    {"launch.twice_instantiated", twice_instantiated},
    {"launch.long_queue", long_queue},
    {"launch.between_launches", between_launches},
    {"launch.handles_used_again", handles_used_again},
    {"launch.for_the_device_by_hand", for_the_device_by_hand},
    {"launch.for_the_device_captured", for_the_device_captured},
    {"launch.for_the_device_with_child", for_the_device_with_child},
    {"launch.for_the_device_cloned", for_the_device_cloned},
    {"launch.for_the_device_updated", for_the_device_updated},
    {"launch.for_both", for_both},
    {"launch.programmatic", programmatic},
    {"launch.programmatic_event", programmatic_event},
    {"launch.cooperative", cooperative},
};

}  // namespace

std::span<const Case> launch_cases() { return kCases; }

}  // namespace sluice::graphs
