// Which calls block while a stream waits for the gate, and how much a stream's queue holds.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "tests/simgpu/driver_probe/probe.hpp"
#include "tests/simgpu/driver_probe/queries.hpp"

namespace sluice::simgpu::probe {
namespace {

// Runs the call in a thread and reports whether it returned while the gate was closed.
void watch(const std::string& title, const Call& call) {
  auto done = std::make_shared<std::promise<CUresult>>();
  std::future<CUresult> answer = done->get_future();
  std::thread([run = call.run, done] {
    cuCtxSetCurrent(context);
    done->set_value(run());
  }).detach();
  const bool blocks = answer.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready;
  if (blocks) {
    *static_cast<volatile std::uint64_t*>(gate) = 0;
    answer.wait();
  }
  std::printf("%s: %s: %s, %d\n", title.c_str(), call.name, blocks ? "blocks" : "returns",
              answer.get());
  std::fflush(stdout);
}

void queue_depth(const char* title, const std::function<void()>& submit) {
  *gate = 1;
  cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
  std::atomic<int> submitted = 0;
  std::atomic<bool> enough = false;
  std::thread thread([&] {
    cuCtxSetCurrent(context);
    for (; submitted < 100'000 && !enough; ++submitted) submit();
  });
  int before = -1;
  while (submitted != before) {
    before = submitted;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  say(std::string("queue depth: ") + title, before);
  enough = true;
  *static_cast<volatile std::uint64_t*>(gate) = 0;
  thread.join();
  cuCtxSynchronize();
}

}  // namespace

void calls_while_parked(const std::string& title, bool queue_full) {
  for (const Call& call : calls_to_try()) {
    *gate = 1;
    cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
    std::atomic<int> launched = 0;
    std::thread launcher([&] {
      cuCtxSetCurrent(context);
      const int wanted = queue_full ? 4096 : 10;
      for (; launched < wanted; ++launched) launch(stream);
    });
    int before = -1;
    while (launched != before) {
      before = launched;
      std::this_thread::sleep_for(std::chrono::milliseconds(queue_full ? 10 : 3));
    }
    watch(title, call);
    *static_cast<volatile std::uint64_t*>(gate) = 0;
    launcher.join();
    cuCtxSynchronize();
  }
}

void queue_depths() {
  queue_depth("kernels", [] { launch(stream); });
  queue_depth("kernels, a wait before each", [] {
    cuStreamWaitValue64(stream, gate_address, 0, CU_STREAM_WAIT_VALUE_EQ);
    launch(stream);
  });
  queue_depth("event records", [] { cuEventRecord(recorded, stream); });
}

}  // namespace sluice::simgpu::probe
