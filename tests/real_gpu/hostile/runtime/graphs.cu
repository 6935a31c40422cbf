// CUDA graphs: updated, big, many, with memory, with loops, launched by the GPU, captured by
// threads.
#include <atomic>

#include "runtime.cuh"

/// A graph of 500 kernels is captured anew and updated for each step (llama.cpp does so).
CASE(graph_update) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  cudaGraphExec_t exec = nullptr;
  int made = 0;
  const Run run = timed(count_of(args, 1500), finish_of(s), [&](int i) {
    cudaGraph_t graph = chain(s, data, 500, i, cudaStreamCaptureModeThreadLocal);
    cudaGraphExecUpdateResultInfo info;
    if (exec == nullptr || cudaGraphExecUpdate(exec, graph, &info) != cudaSuccess) {
      cudaGetLastError();
      exec = instantiate(graph);
      ++made;
    }
    CU(cudaGraphLaunch(exec, s));
    CU(cudaGraphDestroy(graph));
    if (i % 4 == 3) finish(s);
  });
  return report(sum_of(data, made), run);
}

/// 30,000 nodes in one graph; instantiated three times.
CASE(graph_big) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  const double begin = now_s();
  cudaGraph_t graph = chain(s, data, 30000, 1, cudaStreamCaptureModeRelaxed);
  double made = 0;
  for (int i = 0; i < 3; ++i) {
    const double from = now_s();
    cudaGraphExec_t exec = instantiate(graph);
    made += now_s() - from;
    for (int k = 0; k < 3; ++k) CU(cudaGraphLaunch(exec, s));
    finish(s);
    CU(cudaGraphExecDestroy(exec));
  }
  const double took = now_s() - begin;
  return report(sum_of(data), {3, took}, "instantiate_s=" + std::to_string(made / 3));
}

/// 300 executables are alive, launched in turn, into four streams, destroyed and made again.
CASE(graph_many) {
  const auto data = make_data_of(4);
  const auto s = make_streams(4);
  std::vector<cudaGraphExec_t> exec(300);
  const auto make = [&](int i) {
    cudaGraph_t graph = chain(s[i % 4], data[i % 4], 5 + i % 30, i);
    exec[i] = instantiate(graph);
    CU(cudaGraphDestroy(graph));
  };
  for (int i = 0; i < 300; ++i) make(i);
  finish_all();
  const Run run = timed(count_of(args, 120000), finish_all, [&](int i) {
    const int which = (i * 7) % 300;
    CU(cudaGraphLaunch(exec[which], s[which % 4]));
    if (i % 20 == 19) {
      CU(cudaGraphExecDestroy(exec[which]));  // while it runs
      make(which);
    }
    if (i % 100 == 99) finish_all();
  });
  return report(sum_of(data), run);
}

/// Graphs that allocate and free, inside child graphs, and user objects that end with them.
CASE(graph_memory) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  static std::atomic<int> ended{0};
  const int count = count_of(args, 2000);
  const auto end = [&] {
    finish_all();
    for (int i = 0; i < 500 && ended.load() < count; ++i) sleep_ms(10);
  };
  const Run run = timed(count, end, [&](int i) {
    cudaGraph_t graph = capture(s, cudaStreamCaptureModeGlobal, [&] {
      unsigned* scratch = nullptr;
      CU(cudaMallocAsync(reinterpret_cast<void**>(&scratch), 1 << 20, s));
      CU(cudaMemsetAsync(scratch, 1, 1 << 20, s));
      launch(s, scratch, i);
      add(s, data, scratch);
      CU(cudaFreeAsync(scratch, s));
    });
    cudaGraph_t inner = chain(s, data, 10, i), outer;
    CU(cudaGraphCreate(&outer, 0));
    cudaGraphNode_t first, second;
    CU(cudaGraphAddChildGraphNode(&first, outer, nullptr, 0, inner));
    CU(cudaGraphAddChildGraphNode(&second, outer, &first, 1, inner));
    cudaUserObject_t object;
    const auto count_end = [](void* at) { static_cast<std::atomic<int>*>(at)->fetch_add(1); };
    CU(cudaUserObjectCreate(&object, &ended, count_end, 1, cudaUserObjectNoDestructorSync));
    CU(cudaGraphRetainUserObject(outer, object, 1, cudaGraphUserObjectMove));
    cudaGraphExec_t with_memory = instantiate(graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    cudaGraphExec_t nested = instantiate(outer);
    for (int k = 0; k < 3; ++k) {
      CU(cudaGraphLaunch(with_memory, s));
      CU(cudaGraphLaunch(nested, s));
    }
    CU(cudaGraphExecDestroy(nested));
    CU(cudaGraphDestroy(outer));
    finish(s);
    CU(cudaGraphExecDestroy(with_memory));
    CU(cudaGraphDestroy(graph));
    CU(cudaGraphDestroy(inner));
  });
  return report(sum_of(data, ended.load()), run, "ended=" + std::to_string(ended.load()));
}

static __global__ void count_down(cudaGraphConditionalHandle handle, unsigned* left) {
  cudaGraphSetConditional(handle, --*left > 0);
}
static __global__ void set_left(unsigned* left, unsigned value) { *left = value; }

/// Captures `work` into a graph that exists, behind one of its nodes or, with nullptr, beside
/// them.
template <class Work>
static void capture_into(cudaGraph_t graph, const cudaGraphNode_t* behind, cudaStream_t s,
                         Work work) {
  CU(cudaStreamBeginCaptureToGraph(s, graph, behind, nullptr, behind ? 1 : 0,
                                   cudaStreamCaptureModeGlobal));
  work();
  CU(cudaStreamEndCapture(s, nullptr));
}

/// A loop in a graph: a WHILE node around captured kernels.
CASE(graph_while) {
  unsigned* data = make_data();
  unsigned* left = make_data();
  cudaStream_t s = make_stream();
  cudaGraph_t graph;
  CU(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CU(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  capture_into(graph, nullptr, s, [&] {
    set_left<<<1, 1, 0, s>>>(left, 50);
    launch(s, data, 1);
  });
  std::size_t nodes = 0;
  CU(cudaGraphGetNodes(graph, nullptr, &nodes));
  std::vector<cudaGraphNode_t> all(nodes);
  CU(cudaGraphGetNodes(graph, all.data(), &nodes));
  cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t loop;
  CU(cudaGraphAddNode(&loop, graph, &all.back(), nullptr, 1, &params));
  capture_into(params.conditional.phGraph_out[0], nullptr, s, [&] {
    for (int i = 0; i < 5; ++i) launch(s, data, i);
    count_down<<<1, 1, 0, s>>>(handle, left);
  });
  capture_into(graph, &loop, s, [&] {
    for (int i = 0; i < 5; ++i) launch(s, data, 100 + i);
  });
  cudaGraphExec_t exec = instantiate(graph);
  CU(cudaGraphLaunch(exec, s));
  finish(s);
  const Run run = timed(count_of(args, 2000), finish_of(s), [&](int i) {
    CU(cudaGraphLaunch(exec, s));
    launch(s, data, i);
    if (i % 10 == 9) finish(s);
  });
  return report(sum_of(data), run);
}

#ifdef HOSTILE_DEVICE_LAUNCHES  // not under MPS
static __global__ void launch_other(cudaGraphExec_t other, unsigned* result) {
  const cudaError_t said = cudaGraphLaunch(other, cudaStreamGraphFireAndForget);
  if (said != cudaSuccess) *result = said;
}

/// The GPU launches a graph by itself.
CASE(graph_device) {
  unsigned* data = make_data();
  unsigned* result = make_data(0);
  cudaStream_t s = make_stream();
  cudaGraphExec_t inner = instantiate(chain(s, data, 8, 1), cudaGraphInstantiateFlagDeviceLaunch);
  CU(cudaGraphUpload(inner, s));
  cudaGraphExec_t outer = instantiate(capture(s, cudaStreamCaptureModeGlobal, [&] {
    launch(s, data, 3);
    launch_other<<<1, 1, 0, s>>>(inner, result);
  }));
  finish(s);
  const Run run = timed(count_of(args, 40000), [&](int) {
    CU(cudaGraphLaunch(outer, s));
    finish(s);
  });
  const unsigned said = read_word(result);
  return report(sum_of(data, said), run, "device_error=" + std::to_string(said));
}
#endif

/// Two threads capture, in thread-local and relaxed mode, while a third launches, allocates and
/// synchronises.
CASE(capture2) {
  const auto data = make_data_of(3);
  finish_all();
  const int count = count_of(args, 2000);
  std::atomic<int> capturing{2};
  const auto captures = [&](int which, cudaStreamCaptureMode mode) {
    cudaStream_t s = make_stream(which ? cudaStreamDefault : cudaStreamNonBlocking);
    cudaStream_t side = make_stream();
    for (int i = 0; i < count; ++i) {
      cudaEvent_t fork = make_event(), join = make_event();
      cudaGraph_t graph = capture(s, mode, [&] {
        launch(s, data[which], i);
        CU(cudaEventRecord(fork, s));
        CU(cudaStreamWaitEvent(side, fork, 0));
        mix<<<1, 64, 0, side>>>(data[which] + 64, 64, i, 3);
        mix<<<1, 64, 0, s>>>(data[which], 64, i, 3);
        CU(cudaEventRecord(join, side));
        CU(cudaStreamWaitEvent(s, join, 0));
        launch(s, data[which], i + 1);
      });
      cudaGraphExec_t exec = instantiate(graph);
      for (int k = 0; k < 4; ++k) CU(cudaGraphLaunch(exec, s));
      if (i % 5 == 0) finish(s);
      CU(cudaGraphExecDestroy(exec));
      CU(cudaGraphDestroy(graph));
      CU(cudaEventDestroy(fork));
      CU(cudaEventDestroy(join));
    }
    finish(s);
    capturing.fetch_sub(1);
  };
  const double begin = now_s();
  std::thread first([&] { captures(0, cudaStreamCaptureModeThreadLocal); });
  std::thread second([&] { captures(1, cudaStreamCaptureModeRelaxed); });
  cudaStream_t s = make_stream();
  for (int i = 0; i < 20000 || capturing.load() != 0; ++i) {
    if (i < 20000)
      launch(s, data[2], i);
    else
      sleep_ms(0.1);
    if (i % 100 == 0) {
      void* memory = nullptr;
      CU(cudaMallocAsync(&memory, 1 << 20, s));
      CU(cudaFreeAsync(memory, s));
      finish(s);
    }
  }
  first.join();
  second.join();
  finish_all();
  const double took = now_s() - begin;
  return report(sum_of(data), {2.0 * count, took});
}

/// Two graphs in two streams order each other by events that are recorded inside them.
CASE(graph_events) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream(), t = make_stream();
  cudaEvent_t there = make_event(), back = make_event();
  CU(cudaEventRecord(back, t));
  const auto between = [&](cudaStream_t in, cudaEvent_t after, cudaEvent_t before, int salt) {
    return capture(in, cudaStreamCaptureModeGlobal, [&] {
      CU(cudaStreamWaitEvent(in, after, cudaEventWaitExternal));
      for (int i = 0; i < 6; ++i) launch(in, data, salt + i);
      CU(cudaEventRecordWithFlags(before, in, cudaEventRecordExternal));
    });
  };
  cudaGraph_t first = between(s, back, there, 0), second = between(t, there, back, 10);
  cudaGraphExec_t a = instantiate(first), b = instantiate(second);
  finish_all();
  const Run run = timed(count_of(args, 60000), finish_all, [&](int i) {
    CU(cudaGraphLaunch(a, s));
    CU(cudaGraphLaunch(b, t));
    if (i % 20 == 19) CU(cudaEventSynchronize(back));
  });
  return report(sum_of(data), run);
}
