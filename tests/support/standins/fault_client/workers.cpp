#include "workers.hpp"

#include <unistd.h>

#include "base/clock.hpp"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

/// For polling memory. While a stream is parked on the gate, most driver calls would block.
constexpr useconds_t kNapUs = 200;

void note_return(Lane& lane) {
  const std::uint64_t count = lane.launched.load();
  lane.returned_ns[count % kTimes].store(base::monotonic_ns());
  lane.launched.store(count + 1);
}

CUgraphExec capture(const Gpu& gpu, CUstream stream, std::uint64_t kernels, std::uint64_t us) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  for (std::uint64_t i = 0; i < kernels; ++i) check(gpu.launch(stream, us), "captured launch");
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  return exec;
}

}  // namespace

Workers::~Workers() { stop(); }

void Workers::stop() {
  stop_.store(true);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stop_.store(false);
}

void Workers::start_loops(std::size_t lanes, std::uint64_t us, std::uint64_t depth) {
  for (std::size_t i = 0; i < lanes && i < kLanes; ++i) {
    threads_.emplace_back([this, i, us, depth] { loop(gpu_.progress().lanes[i], us, depth); });
  }
}

void Workers::start_mix(std::uint64_t us, std::uint64_t period) {
  constexpr std::uint64_t kDepth = 50;
  threads_.emplace_back([this, us, period] { loop(gpu_.progress().lanes[0], us, kDepth, period); });
}

void Workers::loop(Lane& lane, std::uint64_t us, std::uint64_t depth, std::uint64_t period) {
  constexpr std::uint64_t kLongUs = 1000;
  gpu_.enter();
  CUstream stream = Gpu::new_stream();
  while (!stop_.load()) {
    if (depth != 0 && lane.launched.load() - lane.done.load() >= depth) {
      usleep(kNapUs);
      continue;
    }
    const bool is_long = period != 0 && lane.launched.load() % period == 0;
    check(gpu_.launch(stream, is_long ? kLongUs : us, is_long ? 2 : 1), "cuLaunchKernel");
    note_return(lane);
    Gpu::stamp(stream, lane.done, lane.launched.load());
  }
}

void Workers::start_graph(std::uint64_t kernels, std::uint64_t us, std::uint64_t pause_us) {
  CUstream stream = Gpu::new_stream();
  CUgraphExec exec = capture(gpu_, stream, kernels, us);
  threads_.emplace_back(
      [=, this] { launch_graph(gpu_.progress().lanes[0], stream, exec, pause_us); });
}

void Workers::launch_graph(Lane& lane, CUstream stream, CUgraphExec exec, std::uint64_t pause_us) {
  constexpr std::uint64_t kDepth = 2;
  gpu_.enter();
  while (!stop_.load()) {
    if (lane.launched.load() - lane.done.load() >= kDepth) {
      usleep(kNapUs);
      continue;
    }
    check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    note_return(lane);
    Gpu::stamp(stream, lane.done, lane.launched.load());
    if (pause_us != 0) usleep(static_cast<useconds_t>(pause_us));
  }
}

void Workers::start_training(std::uint64_t us, std::uint64_t mib) {
  threads_.emplace_back([=, this] { train(gpu_.progress().lanes[0], us, mib << 20U); });
}

void Workers::train(Lane& lane, std::uint64_t us, std::uint64_t bytes) {
  gpu_.enter();
  CUstream stream = Gpu::new_stream();
  CUdeviceptr memory = 0;
  while (!stop_.load()) {
    if (const std::uint64_t order = sluice_order(); order != 0) {
      check(cuStreamSynchronize(stream), "cuStreamSynchronize");
      if (memory != 0) check(cuMemFree(memory), "cuMemFree");
      memory = 0;
      obey(order);
      continue;
    }
    if (memory == 0 && bytes <= sluice_memory_grant()) {
      check(cuMemAlloc(&memory, bytes), "cuMemAlloc");
    }
    const CUresult result = gpu_.launch(stream, us);
    if (result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) continue;
    check(result, "cuLaunchKernel");
    note_return(lane);
    Gpu::stamp(stream, lane.done, lane.launched.load());
  }
}

void Workers::obey(std::uint64_t order) {
  constexpr std::uint32_t kLookMs = 50;
  sluice_order_done(order);
  const std::uint64_t kind = order & 0xffU;
  if (kind != SLUICE_ORDER_SLEEP && kind != SLUICE_ORDER_EPOCH) return;
  while (!stop_.load() && sluice_wait_resume(kLookMs) == 0) continue;
}

void Workers::start_jobs(std::uint64_t us, std::uint64_t pause_us) {
  threads_.emplace_back([=, this] { do_jobs(gpu_.progress().lanes[0], us, pause_us); });
}

void Workers::do_jobs(Lane& lane, std::uint64_t us, std::uint64_t pause_us) {
  gpu_.enter();
  CUstream stream = Gpu::new_stream();
  while (!stop_.load()) {
    const std::uint64_t job = sluice_job_begin(0);
    check(gpu_.launch(stream, us), "cuLaunchKernel");
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    sluice_job_end(job);
    note_return(lane);
    lane.done.store(lane.launched.load());
    usleep(static_cast<useconds_t>(pause_us + kNapUs));
  }
}

}  // namespace sluice::test
