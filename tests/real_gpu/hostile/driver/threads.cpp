// Many threads, threads that come and go, and threads with small stacks.
#include "driver.hpp"

/// 100 threads, each with its own default stream; all synchronise all the time.
CASE(threads100) {
  Primary gpu;
  Kernel mix;
  const int count = count_of(args, 2800);
  std::vector<CUdeviceptr> data(100);
  for (auto& each : data) each = make_data();
  finish_all();
  std::vector<std::thread> threads;
  const auto join_all = [&] {
    for (auto& thread : threads) thread.join();
  };
  const Run run = timed(100, join_all, [&](int t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      for (int i = 0; i < count; ++i) {
        mix(CU_STREAM_PER_THREAD, data[t], i);
        if (i % 2) finish(CU_STREAM_PER_THREAD);
      }
    });
  });
  return report(sum_of(data, 1), {100.0 * count, run.seconds});
}

/// Each request has a thread of its own.
CASE(threadchurn) {
  Primary gpu;
  Kernel mix;
  const CUdeviceptr data = make_data();
  finish_all();
  const Run run = timed(count_of(args, 9000), [&](int) {
    std::thread([&] {
      CU(cuCtxSetCurrent(gpu.context));
      for (unsigned k = 0; k < 5; ++k) mix(CU_STREAM_PER_THREAD, data, k);
      finish(CU_STREAM_PER_THREAD);
    }).join();
  });
  return report(sum_of(data), run);
}

/// Threads whose stacks are small.
CASE(smallstack) {
  Primary gpu;
  Kernel mix;
  std::vector<pthread_t> threads(16);
  std::vector<CUdeviceptr> data(threads.size());
  for (auto& each : data) each = make_data();
  finish_all();
  static unsigned count = 0;
  count = static_cast<unsigned>(count_of(args, 30000));
  static const auto work = [&](CUdeviceptr own) {
    CU(cuCtxSetCurrent(gpu.context));
    CUstream s = make_stream();
    for (unsigned i = 0; i < count; ++i) {
      mix(s, own, i);
      if (i % 50 == 0) finish(s);
    }
    CUgraph graph;
    CUgraphExec exec;
    CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (unsigned i = 0; i < 20; ++i) mix(s, own, i);
    CU(cuStreamEndCapture(s, &graph));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuGraphLaunch(exec, s));
    finish(s);
    CU(cuStreamDestroy(s));
  };
  const auto body = [](void* own) -> void* {
    work(*static_cast<CUdeviceptr*>(own));
    return nullptr;
  };
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 96 << 10);
  const auto join_all = [&] {
    for (auto& thread : threads) pthread_join(thread, nullptr);
  };
  const Run run = timed(16, join_all, [&](int t) {
    if (pthread_create(&threads[t], &attr, body, &data[t]) != 0) die("pthread_create");
  });
  return report(sum_of(data, threads.size()), {16.0 * count, run.seconds});
}
