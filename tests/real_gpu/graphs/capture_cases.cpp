// Stream captures: the graph must contain exactly the captured work.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <latch>
#include <thread>

#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

void every_mode(Bench& bench) {
  const Stream stream = new_stream();
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED}) {
    begin(stream, mode);
    chain(stream, bench.x(), 1 + static_cast<std::uint32_t>(mode), 10);
    const Graph graph = end(stream);
    const Exec exec = instantiate(graph);
    bench.launch(exec, stream, 3);
  }
  bench.look();
}

// Waits are due in front of kernels that were never seen, and in front of kernels whose durations
// differ.
void unseen_and_differing(Bench& bench) {
  const Stream stream = new_stream();
  begin(stream);
  for (std::uint32_t i = 0; i < 12; ++i) {
    Step step{i % 2 == 0 ? Kernel::kUnseen : Kernel::kMixed, bench.x(), 5 + 2 * i, i};
    step.threads = i % 4 < 2 ? 128 : 512;
    step.ns = i % 3 == 0 ? 300'000 : 15'000;
    launch(stream, step);
  }
  const Graph graph = end(stream);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 4);
  bench.look();
}

void forked_streams(Bench& bench) {
  const Stream first = new_stream();
  const Stream second = new_stream();
  const Stream third = new_stream();
  begin(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
  chain(first, bench.x(), 1, 3);
  join(second, first);
  chain(second, bench.y(), 2);
  join(third, second);
  chain(third, bench.z(), 3, 5);
  chain(first, bench.x(), 4, 5);
  join(second, third);
  launch(second, Combine{bench.y(), bench.z()});
  join(first, second);
  launch(first, Combine{bench.x(), bench.y()});
  const Graph graph = end(first);
  const Exec exec = instantiate(graph);
  bench.launch(exec, first, 5);
  bench.look();
}

void two_at_once(Bench& bench) {
  const Stream first = new_stream();
  const Stream second = new_stream();
  begin(first, CU_STREAM_CAPTURE_MODE_RELAXED);
  begin(second, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (std::uint32_t i = 0; i < 8; ++i) {
    launch(first, link(bench.x(), 1, i));
    launch(second, link(bench.y(), 2, i));
  }
  const Graph second_graph = end(second);
  chain(first, bench.x(), 3, 3);
  const Graph first_graph = end(first);
  const Exec first_exec = instantiate(first_graph);
  const Exec second_exec = instantiate(second_graph);
  for (int i = 0; i < 4; ++i) {
    bench.launch(first_exec, first);
    bench.launch(second_exec, second);
  }
  join(first, second);
  launch(first, Combine{bench.x(), bench.y()});
  bench.look();
}

/// For a thread of its own: captures and launches, and returns the error.
CUresult capture_in_thread(CUdeviceptr x, std::uint32_t seed) {
  try {
    enter_device();
    const Stream stream = new_stream();
    for (std::uint32_t i = 0; i < 3; ++i) {
      const Graph graph = captured(x, seed + i);
      const Exec exec = instantiate(graph);
      for (int j = 0; j < 2; ++j) SLUICE_MUST(cuGraphLaunch(exec, stream));
      SLUICE_MUST(cuStreamSynchronize(stream));
    }
  } catch (const Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return CUDA_ERROR_UNKNOWN;
  }
  return CUDA_SUCCESS;
}

void three_threads(Bench& bench) {
  CUresult first = CUDA_ERROR_NOT_READY;
  CUresult second = CUDA_ERROR_NOT_READY;
  {
    const std::jthread one([&] { first = capture_in_thread(bench.x(), 10); });
    const std::jthread two([&] { second = capture_in_thread(bench.y(), 20); });
    const Stream stream = new_stream();
    for (std::uint32_t i = 0; i < 3; ++i) chain(stream, bench.z(), 30 + i);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
  bench.note("first", first);
  bench.note("second", second);
  bench.look();
}

// One thread captures in the mode that forbids unsafe calls to every thread, while another runs
// kernels of unknown duration. Our samples and queries must not break the capture.
void global_during_launches(Bench& bench) {
  const Stream stream = new_stream();
  std::atomic<bool> stop{false};
  CUresult other_thread = CUDA_SUCCESS;
  Graph graph;
  {
    const Stream other = new_stream();
    SLUICE_MUST(Call(Step{Kernel::kShort, bench.y(), 1, 0}).launch(other));
    SLUICE_MUST(cuStreamSynchronize(other));
    std::latch entered{1};
    std::jthread thread([&] {
      enter_device();
      entered.count_down();
      for (std::uint32_t i = 0; !stop.load(); ++i) {
        Step step{Kernel::kShort, bench.y(), 1, 0};
        step.threads = 32U << (i % 4);
        if (const CUresult result = Call(step).launch(other); result != CUDA_SUCCESS) {
          other_thread = result;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
    entered.wait();
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (std::uint32_t i = 0; i < 12; ++i) {
      launch(stream, link(bench.x(), 5, i));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    graph = end(stream);
    stop.store(true);
  }
  bench.note("other thread", other_thread);
  const Exec exec = instantiate(graph);
  bench.launch(exec, stream, 4);
  SLUICE_MUST(cuCtxSynchronize());
  // The number of launches of the other thread depends on timing.
  SLUICE_MUST(cuMemcpyDtoD(bench.y(), bench.x(), kWords * sizeof(std::uint32_t)));
  bench.look();
}

// A capture that is broken in the middle, in each mode. Afterwards the stream works again.
void invalidated(Bench& bench) {
  const Stream stream = new_stream();
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    begin(stream, mode);
    chain(stream, bench.x(), 1, 3);
    bench.note("synchronize", cuStreamSynchronize(stream));
    bench.note("launch", Call(link(bench.x(), 2, 0)).launch(stream));
    Graph graph;
    bench.note("end", cuStreamEndCapture(stream, graph.out()));
    bench.note("graph", graph == nullptr ? 0 : 1);
    chain(stream, bench.x(), 3, 4);
    const Graph good = captured(bench.x(), 4, 6);
    const Exec exec = instantiate(good);
    bench.launch(exec, stream, 2);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
  bench.look();
}

// Captures that end with their stream, and a fork that is never joined. Handles may be reused.
void abandoned(Bench& bench) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    Stream stream = new_stream();
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    chain(stream, bench.x(), i, 3);
    CUstream raw = stream.release();
    bench.note("destroy", cuStreamDestroy(raw));
    stream = new_stream();
    chain(stream, bench.x(), 10 + i, 3);
    const Stream fork = new_stream();
    begin(stream);
    launch(stream, link(bench.x(), 20, i));
    join(fork, stream);
    launch(fork, link(bench.y(), 21, i));
    Graph graph;
    bench.note("unjoined", cuStreamEndCapture(stream, graph.out()));
    chain(stream, bench.x(), 30 + i, 2);
    const Graph good = captured(bench.x(), 40 + i, 4);
    const Exec exec = instantiate(good);
    bench.launch(exec, stream);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
  bench.look();
}

constexpr Case kCases[] = {
    {"capture.every_mode", every_mode},
    {"capture.unseen_and_differing", unseen_and_differing},
    {"capture.forked_streams", forked_streams},
    {"capture.two_at_once", two_at_once},
    {"capture.three_threads", three_threads},
    {"capture.global_during_launches", global_during_launches},
    {"capture.invalidated", invalidated},
    {"capture.abandoned", abandoned},
};

}  // namespace

std::span<const Case> capture_cases() { return kCases; }

}  // namespace sluice::graphs
