// Cases that use the CUDA runtime: streams, graphs, memory.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "hostile.hpp"

namespace cg = cooperative_groups;

#define RT(call)                                                                          \
  do {                                                                                    \
    cudaError_t rt_result = (call);                                                       \
    if (rt_result != cudaSuccess) {                                                       \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                  \
                   cudaGetErrorString(rt_result));                                        \
      std::fflush(stderr);                                                                \
      _exit(3);                                                                           \
    }                                                                                     \
  } while (0)

namespace {

constexpr unsigned kN = 4096;
constexpr unsigned long long kGiveUpNs = 4'000'000'000ull;

__device__ unsigned long long gpu_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
__device__ unsigned mix_one(unsigned x, unsigned salt) {
  x = x * 1664525u + salt;
  return x ^ (x >> 13);
}
__global__ void mix(unsigned* data, unsigned n, unsigned salt, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = data[i];
  for (unsigned r = 0; r < rounds; ++r) x = mix_one(x, salt);
  data[i] = x;
}
__global__ void add_from(unsigned* to, const unsigned* from, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] += from[i] * 3;
}
/// Waits until *word >= want. Gives up after some seconds, so that nothing hangs for good.
__global__ void await(volatile unsigned* word, unsigned want, unsigned* gave_up) {
  const unsigned long long begin = gpu_ns();
  while (*word < want) {
    if (gpu_ns() - begin > kGiveUpNs) {
      atomicAdd(gave_up, 1);
      return;
    }
    __nanosleep(100);
  }
}
__global__ void meet(unsigned* counter, unsigned want, unsigned* gave_up) {
  __threadfence();
  atomicAdd(counter, 1);
  const unsigned long long begin = gpu_ns();
  while (atomicAdd(counter, 0) < want) {
    if (*(volatile unsigned*)gave_up != 0) return;
    if (gpu_ns() - begin > kGiveUpNs) {
      atomicAdd(gave_up, 1);
      return;
    }
  }
}

void launch(cudaStream_t s, unsigned* data, unsigned salt, unsigned rounds = 4) {
  mix<<<kN / 256, 256, 0, s>>>(data, kN, salt, rounds);
  RT(cudaGetLastError());
}
unsigned* make_data(unsigned value = 7) {
  unsigned* data = nullptr;
  RT(cudaMalloc(&data, kN * 4));
  std::vector<unsigned> host(kN, value);
  RT(cudaMemcpy(data, host.data(), kN * 4, cudaMemcpyHostToDevice));
  return data;
}
std::uint64_t sum_of(const unsigned* data, std::uint64_t h = 0xcbf29ce484222325u) {
  std::vector<unsigned> host(kN);
  RT(cudaMemcpy(host.data(), data, kN * 4, cudaMemcpyDeviceToHost));
  return fnv(host.data(), kN * 4, h);
}
cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t s;
  RT(cudaStreamCreateWithFlags(&s, flags));
  return s;
}
unsigned* make_mapped(unsigned** on_device = nullptr) {
  unsigned* word = nullptr;
  RT(cudaHostAlloc(reinterpret_cast<void**>(&word), 4096, cudaHostAllocMapped));
  std::memset(word, 0, 4096);
  if (on_device) RT(cudaHostGetDevicePointer(reinterpret_cast<void**>(on_device), word, 0));
  return word;
}
int count_of(const Args& args, int otherwise) { return args.empty() ? otherwise : std::atoi(args[0].c_str()); }

}  // namespace

// --- Streams and threads --------------------------------------------------------------------------

CASE(tiny) {
  const int count = count_of(args, 200000);
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  launch(s, data, 1);
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    launch(s, data, i);
    if (i % 10000 == 9999) RT(cudaStreamSynchronize(s));
  }
  RT(cudaStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

CASE(streams100) {
  const int count = count_of(args, 150000);
  std::vector<cudaStream_t> s(100);
  std::vector<unsigned*> data(100);
  for (auto& each : s) each = make_stream();
  for (auto& each : data) each = make_data();
  for (int i = 0; i < 100; ++i) launch(s[i], data[i], 1);
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    launch(s[i % 100], data[i % 100], i);
    if (i % 2000 == 1999) RT(cudaStreamSynchronize(s[i / 2000 % 100]));
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  std::uint64_t sum = 1;
  for (auto& each : data) sum = sum_of(each, sum);
  return report(sum, count, took);
}

/// A stream for each piece of work, destroyed while the work runs.
CASE(streamchurn) {
  const int count = count_of(args, 4000);
  unsigned* data = make_data();
  std::vector<unsigned*> more(8);
  for (auto& each : more) each = make_data();
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    cudaStream_t s = make_stream(i % 2 ? cudaStreamNonBlocking : cudaStreamDefault);
    cudaEvent_t e;
    RT(cudaEventCreate(&e));
    for (int k = 0; k < 5; ++k) launch(s, more[i % 8], k);
    RT(cudaEventRecord(e, s));
    RT(cudaStreamDestroy(s));
    if (i % 8 == 7) RT(cudaEventSynchronize(e));
    if (i % 64 == 63) {
      RT(cudaDeviceSynchronize());
      launch(nullptr, data, i);
    }
    RT(cudaEventDestroy(e));
    if (i % 8 == 7) RT(cudaDeviceSynchronize());
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  std::uint64_t sum = sum_of(data);
  for (auto& each : more) sum = sum_of(each, sum);
  return report(sum, count, took);
}

/// The legacy and a per-thread default stream, a blocking and a non-blocking one: results depend on
/// the order that the default streams promise.
CASE(legacymix) {
  const int count = count_of(args, 15000);
  unsigned* data = make_data();
  unsigned* other = make_data(9);
  cudaStream_t blocking = make_stream(cudaStreamDefault), free = make_stream();
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    launch(cudaStreamLegacy, data, i);
    launch(blocking, data, i + 1);
    launch(nullptr, data, i + 2);
    launch(cudaStreamPerThread, data, i + 3);
    add_from<<<kN / 256, 256, 0, cudaStreamLegacy>>>(data, other, kN);
    RT(cudaStreamSynchronize(cudaStreamLegacy));  // `free` waits for no other stream
    launch(free, other, i);
    RT(cudaStreamSynchronize(free));
    if (i % 10 == 0) RT(cudaStreamSynchronize(cudaStreamPerThread));
    if (i % 10 == 5) RT(cudaStreamSynchronize(nullptr));
    RT(cudaDeviceSynchronize());
  }
  const double took = now_s() - begin;
  return report(sum_of(data, sum_of(other)), count, took);
}

/// Resets the device in the middle and goes on, with streams, events and graphs alive.
CASE(reset) {
  std::uint64_t sum = 1;
  const double begin = now_s();
  int launches = 0;
  for (int round = 0; round < 4; ++round) {
    unsigned* data = make_data();
    cudaStream_t s = make_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    RT(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 50; ++i) launch(s, data, i);
    RT(cudaStreamEndCapture(s, &graph));
    RT(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 200; ++i, launches += 60) {
      RT(cudaGraphLaunch(exec, s));
      for (int k = 0; k < 10; ++k) launch(s, data, k);
    }
    RT(cudaStreamSynchronize(s));
    sum = sum_of(data, sum);
    for (int i = 0; i < 500; ++i) launch(s, data, i, 2000);  // still running when the device is reset
    if (round % 2) RT(cudaStreamSynchronize(s));
    RT(cudaDeviceReset());
  }
  return report(sum, launches, now_s() - begin);
}

/// Queries of events that are done, between launches, as caching allocators make them.
CASE(eventpoll) {
  const int count = count_of(args, 20000);
  unsigned* data = make_data();
  cudaStream_t s = make_stream(), busy = make_stream();
  unsigned* slow = make_data();
  std::vector<cudaEvent_t> done(16);
  for (auto& e : done) {
    RT(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    RT(cudaEventRecord(e, s));
  }
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    if (i % 200 == 0) mix<<<1, 32, 0, busy>>>(slow, 32, i, 100000);
    launch(s, data, i);
    for (auto& e : done) RT(cudaEventQuery(e));
    if (i % 500 == 499) RT(cudaStreamSynchronize(s));
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  return report(sum_of(data, sum_of(slow)), count, took);
}

// --- Kernels that wait for others -----------------------------------------------------------------

/// A kernel in each of N streams; each waits until all have begun.
int meet_in(int streams, int rounds) {
  std::vector<cudaStream_t> s(streams);
  for (auto& each : s) each = make_stream();
  unsigned* words = make_data(0);
  cudaFuncAttributes attributes;
  RT(cudaFuncGetAttributes(&attributes, meet));  // loads the code, so that no launch has to
  meet<<<1, 1, 0, s[0]>>>(words + 64, 1, words + 1);
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  unsigned gave_up = 0;
  int round = 0;
  for (; round < rounds && gave_up == 0; ++round) {
    for (auto& each : s) meet<<<1, 1, 0, each>>>(words, (round + 1) * streams, words + 1);
    if (round % 8 == 7) {
      RT(cudaDeviceSynchronize());
      RT(cudaMemcpy(&gave_up, words + 1, 4, cudaMemcpyDeviceToHost));
    }
  }
  RT(cudaDeviceSynchronize());
  RT(cudaMemcpy(&gave_up, words + 1, 4, cudaMemcpyDeviceToHost));
  const double took = now_s() - begin;
  return report(gave_up, round, took, "gave_up=" + std::to_string(gave_up));
}
CASE(meet8) { return meet_in(8, count_of(args, 4000)); }
CASE(meet32) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  return meet_in(32, count_of(args, 1500));
}
CASE(meet24on8) { return meet_in(24, count_of(args, 1500)); }

/// Graphs, events and memory that are made while a kernel waits for the host.
CASE(spingraph) {
  unsigned* seen = nullptr;
  unsigned* word = make_mapped(&seen);
  unsigned* gave_up = make_data(0);
  unsigned* data = make_data();
  cudaStream_t waits = make_stream(), s = make_stream();
  cudaFuncAttributes attributes;
  RT(cudaFuncGetAttributes(&attributes, await));
  RT(cudaFuncGetAttributes(&attributes, mix));
  RT(cudaDeviceSynchronize());
  const int rounds = count_of(args, 40);
  const double begin = now_s();
  for (int round = 1; round <= rounds; ++round) {
    await<<<1, 1, 0, waits>>>(seen, round, gave_up);  // the first work of the process, in round 1
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    RT(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 100; ++i) launch(s, data, i);
    RT(cudaStreamEndCapture(s, &graph));
    RT(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; ++i) RT(cudaGraphLaunch(exec, s));
    cudaEvent_t e;
    RT(cudaEventCreate(&e));
    RT(cudaEventRecord(e, s));
    RT(cudaEventSynchronize(e));
    if (cudaStreamQuery(waits) != cudaErrorNotReady) die("the kernel gave up, or did not wait");
    __atomic_store_n(word, round, __ATOMIC_SEQ_CST);
    RT(cudaStreamSynchronize(waits));
    RT(cudaEventDestroy(e));
    RT(cudaGraphExecDestroy(exec));
    RT(cudaGraphDestroy(graph));
  }
  const double took = now_s() - begin;
  unsigned gave = 0;
  RT(cudaMemcpy(&gave, gave_up, 4, cudaMemcpyDeviceToHost));
  return report(sum_of(data, gave), rounds, took, "gave_up=" + std::to_string(gave));
}

namespace {
__global__ void serve(volatile unsigned* ask, volatile unsigned* answer, unsigned last, unsigned* gave_up) {
  unsigned x = 7;
  unsigned long long begin = gpu_ns();
  for (unsigned turn = 1; turn <= last;) {
    if (*ask >= turn) {
      x = mix_one(x, turn);
      answer[1] = x;
      __threadfence_system();
      answer[0] = turn;
      ++turn;
      begin = gpu_ns();
    } else if (gpu_ns() - begin > kGiveUpNs) {
      atomicAdd(gave_up, 1);
      return;
    }
  }
}
}  // namespace

/// One kernel that serves requests of the host for seconds.
CASE(persistent) {
  unsigned *ask_seen, *answer_seen;
  unsigned* ask = make_mapped(&ask_seen);
  volatile unsigned* answer = make_mapped(&answer_seen);
  unsigned* gave_up = make_data(0);
  cudaStream_t s = make_stream();
  const unsigned count = count_of(args, 150000);
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  serve<<<1, 1, 0, s>>>(ask_seen, answer_seen, count, gave_up);
  for (unsigned i = 1; i <= count; ++i) {
    __atomic_store_n(ask, i, __ATOMIC_SEQ_CST);
    while (answer[0] != i) {
      if (now_s() - begin > 60) die("the persistent kernel does not answer");
    }
  }
  RT(cudaStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(answer[1], count, took);
}

namespace {
__global__ void long_work(unsigned* data, unsigned long long steps) {
  unsigned x = data[threadIdx.x];
  for (unsigned long long i = 0; i < steps; ++i) x = mix_one(x, static_cast<unsigned>(i));
  data[threadIdx.x] = x;
}
}  // namespace
/// One kernel of seconds, then small ones.
CASE(longkernel) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  launch(s, data, 1);
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  long_work<<<132, 256, 0, s>>>(data, 200'000'000ull);
  const double first = now_s();
  RT(cudaStreamSynchronize(s));
  const double middle = now_s();
  for (int i = 0; i < 20000; ++i) launch(s, data, i);
  RT(cudaStreamSynchronize(s));
  const double end = now_s();
  return report(sum_of(data), 1, end - begin,
                "launch_us=" + std::to_string((first - begin) * 1e6) + " kernel_s=" + std::to_string(middle - begin));
}

// --- Host functions -------------------------------------------------------------------------------

/// Host functions tell another thread to launch more: each piece of work asks for the next.
CASE(hostfunc) {
  struct State {
    std::mutex mutex;
    std::condition_variable more;
    int asked = 0;
  } state;
  unsigned* data = make_data();
  cudaStream_t s = make_stream(), t = make_stream();
  const int count = count_of(args, 8000);
  RT(cudaDeviceSynchronize());
  const auto ask = [](void* at) {
    auto& to = *static_cast<State*>(at);
    const std::lock_guard lock(to.mutex);
    ++to.asked;
    to.more.notify_one();
  };
  const double begin = now_s();
  std::thread worker([&] {
    for (int done = 0; done < count; ++done) {
      {
        std::unique_lock lock(state.mutex);
        state.more.wait(lock, [&] { return state.asked > done; });
      }
      cudaEvent_t e;
      RT(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
      launch(s, data, done);
      RT(cudaEventRecord(e, s));
      RT(cudaStreamWaitEvent(t, e, 0));
      launch(t, data, done + 1);
      RT(cudaLaunchHostFunc(t, ask, &state));
      RT(cudaEventRecord(e, t));
      RT(cudaStreamWaitEvent(s, e, 0));
      RT(cudaEventDestroy(e));
    }
  });
  ask(&state);
  worker.join();
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

// --- Graphs ---------------------------------------------------------------------------------------

namespace {
cudaGraph_t chain(cudaStream_t s, unsigned* data, int kernels, unsigned salt, cudaStreamCaptureMode mode) {
  cudaGraph_t graph;
  RT(cudaStreamBeginCapture(s, mode));
  for (int i = 0; i < kernels; ++i) launch(s, data, salt + i);
  RT(cudaStreamEndCapture(s, &graph));
  return graph;
}
}  // namespace

/// A graph of 500 kernels is captured anew and updated for each step (llama.cpp does so).
CASE(graph_update) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  cudaGraphExec_t exec = nullptr;
  const int count = count_of(args, 600);
  const double begin = now_s();
  int made = 0;
  for (int i = 0; i < count; ++i) {
    cudaGraph_t graph = chain(s, data, 500, i, cudaStreamCaptureModeThreadLocal);
    cudaGraphExecUpdateResultInfo info;
    if (exec == nullptr || cudaGraphExecUpdate(exec, graph, &info) != cudaSuccess) {
      cudaGetLastError();
      RT(cudaGraphInstantiate(&exec, graph, 0));
      ++made;
    }
    RT(cudaGraphLaunch(exec, s));
    RT(cudaGraphDestroy(graph));
    if (i % 4 == 3) RT(cudaStreamSynchronize(s));
  }
  RT(cudaStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(sum_of(data, made), count, took);
}

/// 30,000 nodes in one graph; instantiated three times.
CASE(graph_big) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  const double begin = now_s();
  cudaGraph_t graph = chain(s, data, 30000, 1, cudaStreamCaptureModeRelaxed);
  double made = 0;
  for (int i = 0; i < 3; ++i) {
    cudaGraphExec_t exec;
    const double from = now_s();
    RT(cudaGraphInstantiate(&exec, graph, 0));
    made += now_s() - from;
    for (int k = 0; k < 3; ++k) RT(cudaGraphLaunch(exec, s));
    RT(cudaStreamSynchronize(s));
    RT(cudaGraphExecDestroy(exec));
  }
  const double took = now_s() - begin;
  return report(sum_of(data), 3, took, "instantiate_s=" + std::to_string(made / 3));
}

/// 300 executables are alive, launched in turn, into four streams, destroyed and made again.
CASE(graph_many) {
  std::vector<unsigned*> data(4);
  std::vector<cudaStream_t> s(4);
  for (auto& each : data) each = make_data();
  for (auto& each : s) each = make_stream();
  std::vector<cudaGraphExec_t> exec(300);
  const auto make = [&](int i) {
    cudaGraph_t graph = chain(s[i % 4], data[i % 4], 5 + i % 30, i, cudaStreamCaptureModeGlobal);
    RT(cudaGraphInstantiate(&exec[i], graph, 0));
    RT(cudaGraphDestroy(graph));
  };
  for (int i = 0; i < 300; ++i) make(i);
  RT(cudaDeviceSynchronize());
  const int count = count_of(args, 20000);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    const int which = (i * 7) % 300;
    RT(cudaGraphLaunch(exec[which], s[which % 4]));
    if (i % 20 == 19) {
      RT(cudaGraphExecDestroy(exec[which]));  // while it runs
      make(which);
    }
    if (i % 100 == 99) RT(cudaDeviceSynchronize());
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  std::uint64_t sum = 1;
  for (auto& each : data) sum = sum_of(each, sum);
  return report(sum, count, took);
}

/// Graphs that allocate and free, inside child graphs, and user objects that end with them.
CASE(graph_memory) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  static std::atomic<int> ended{0};
  const int count = count_of(args, 300);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    cudaGraph_t graph, inner, outer;
    RT(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    unsigned* scratch = nullptr;
    RT(cudaMallocAsync(reinterpret_cast<void**>(&scratch), 1 << 20, s));
    RT(cudaMemsetAsync(scratch, 1, 1 << 20, s));
    launch(s, scratch, i);
    add_from<<<kN / 256, 256, 0, s>>>(data, scratch, kN);
    RT(cudaFreeAsync(scratch, s));
    RT(cudaStreamEndCapture(s, &graph));
    inner = chain(s, data, 10, i, cudaStreamCaptureModeGlobal);
    RT(cudaGraphCreate(&outer, 0));
    cudaGraphNode_t first, second;
    RT(cudaGraphAddChildGraphNode(&first, outer, nullptr, 0, inner));
    RT(cudaGraphAddChildGraphNode(&second, outer, &first, 1, inner));
    cudaUserObject_t object;
    RT(cudaUserObjectCreate(&object, &ended, [](void* at) { static_cast<std::atomic<int>*>(at)->fetch_add(1); }, 1,
                            cudaUserObjectNoDestructorSync));
    RT(cudaGraphRetainUserObject(outer, object, 1, cudaGraphUserObjectMove));
    cudaGraphExec_t with_memory, nested;
    RT(cudaGraphInstantiate(&with_memory, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    RT(cudaGraphInstantiate(&nested, outer, 0));
    for (int k = 0; k < 3; ++k) {
      RT(cudaGraphLaunch(with_memory, s));
      RT(cudaGraphLaunch(nested, s));
    }
    RT(cudaGraphExecDestroy(nested));
    RT(cudaGraphDestroy(outer));
    RT(cudaStreamSynchronize(s));
    RT(cudaGraphExecDestroy(with_memory));
    RT(cudaGraphDestroy(graph));
    RT(cudaGraphDestroy(inner));
  }
  RT(cudaDeviceSynchronize());
  for (int i = 0; i < 500 && ended.load() < count; ++i) sleep_ms(10);
  const double took = now_s() - begin;
  return report(sum_of(data, ended.load()), count, took, "ended=" + std::to_string(ended.load()));
}

namespace {
__global__ void count_down(cudaGraphConditionalHandle handle, unsigned* left) {
  cudaGraphSetConditional(handle, --*left > 0);
}
__global__ void set_left(unsigned* left, unsigned value) { *left = value; }
}  // namespace

/// A loop in a graph: a WHILE node around captured kernels.
CASE(graph_while) {
  unsigned* data = make_data();
  unsigned* left = make_data();
  cudaStream_t s = make_stream();
  cudaGraph_t graph;
  RT(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  RT(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  RT(cudaStreamBeginCaptureToGraph(s, graph, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
  set_left<<<1, 1, 0, s>>>(left, 50);
  launch(s, data, 1);
  RT(cudaStreamEndCapture(s, &graph));
  std::size_t nodes = 0;
  RT(cudaGraphGetNodes(graph, nullptr, &nodes));
  std::vector<cudaGraphNode_t> all(nodes);
  RT(cudaGraphGetNodes(graph, all.data(), &nodes));
  cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t loop;
  RT(cudaGraphAddNode(&loop, graph, &all.back(), nullptr, 1, &params));
  cudaGraph_t body = params.conditional.phGraph_out[0];
  RT(cudaStreamBeginCaptureToGraph(s, body, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 5; ++i) launch(s, data, i);
  count_down<<<1, 1, 0, s>>>(handle, left);
  RT(cudaStreamEndCapture(s, nullptr));
  RT(cudaStreamBeginCaptureToGraph(s, graph, &loop, nullptr, 1, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 5; ++i) launch(s, data, 100 + i);
  RT(cudaStreamEndCapture(s, &graph));
  cudaGraphExec_t exec;
  RT(cudaGraphInstantiate(&exec, graph, 0));
  RT(cudaGraphLaunch(exec, s));
  RT(cudaStreamSynchronize(s));
  const int count = count_of(args, 1000);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    RT(cudaGraphLaunch(exec, s));
    launch(s, data, i);
    if (i % 10 == 9) RT(cudaStreamSynchronize(s));
  }
  RT(cudaStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

namespace {
__global__ void launch_other(cudaGraphExec_t other, int* result) {
  const cudaError_t said = cudaGraphLaunch(other, cudaStreamGraphFireAndForget);
  if (said != cudaSuccess) *result = said;
}
__global__ void child_kernel(unsigned* data, unsigned salt) {
  data[threadIdx.x] = mix_one(data[threadIdx.x], salt);
}
__global__ void parent_kernel(unsigned* data, unsigned salt) {
  if (threadIdx.x == 0) {
    child_kernel<<<1, 256, 0, cudaStreamTailLaunch>>>(data, salt);
    child_kernel<<<1, 256, 0, cudaStreamTailLaunch>>>(data, salt + 1);
  }
}
}  // namespace

/// The GPU launches a graph by itself.
CASE(graph_device) {
  unsigned* data = make_data();
  int* result = reinterpret_cast<int*>(make_data(0));
  cudaStream_t s = make_stream();
  cudaGraph_t inner = chain(s, data, 8, 1, cudaStreamCaptureModeGlobal), outer;
  cudaGraphExec_t inner_exec, outer_exec;
  RT(cudaGraphInstantiate(&inner_exec, inner, cudaGraphInstantiateFlagDeviceLaunch));
  RT(cudaGraphUpload(inner_exec, s));
  RT(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  launch(s, data, 3);
  launch_other<<<1, 1, 0, s>>>(inner_exec, result);
  RT(cudaStreamEndCapture(s, &outer));
  RT(cudaGraphInstantiate(&outer_exec, outer, 0));
  RT(cudaStreamSynchronize(s));
  const int count = count_of(args, 4000);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    RT(cudaGraphLaunch(outer_exec, s));
    RT(cudaStreamSynchronize(s));
  }
  const double took = now_s() - begin;
  int said = 0;
  RT(cudaMemcpy(&said, result, 4, cudaMemcpyDeviceToHost));
  return report(sum_of(data, said), count, took, "device_error=" + std::to_string(said));
}

/// Kernels that launch kernels.
CASE(cdp) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  RT(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 4096));
  RT(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
  RT(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 << 20));
  parent_kernel<<<1, 32, 0, s>>>(data, 1);
  RT(cudaStreamSynchronize(s));
  const int count = count_of(args, 6000);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    parent_kernel<<<1, 32, 0, s>>>(data, i);
    if (i % 50 == 49) RT(cudaStreamSynchronize(s));
  }
  RT(cudaStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

/// Two threads capture, in thread-local and relaxed mode, while a third launches, allocates and
/// synchronises.
CASE(capture2) {
  std::vector<unsigned*> data(3);
  for (auto& each : data) each = make_data();
  RT(cudaDeviceSynchronize());
  const int count = count_of(args, 400);
  std::atomic<int> capturing{2};
  const auto captures = [&](int which, cudaStreamCaptureMode mode) {
    cudaStream_t s = make_stream(which ? cudaStreamDefault : cudaStreamNonBlocking);
    cudaStream_t side = make_stream();
    for (int i = 0; i < count; ++i) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      cudaEvent_t fork, join;
      RT(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
      RT(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
      RT(cudaStreamBeginCapture(s, mode));
      launch(s, data[which], i);
      RT(cudaEventRecord(fork, s));
      RT(cudaStreamWaitEvent(side, fork, 0));
      mix<<<1, 64, 0, side>>>(data[which] + 64, 64, i, 3);
      mix<<<1, 64, 0, s>>>(data[which], 64, i, 3);
      RT(cudaEventRecord(join, side));
      RT(cudaStreamWaitEvent(s, join, 0));
      launch(s, data[which], i + 1);
      RT(cudaStreamEndCapture(s, &graph));
      RT(cudaGraphInstantiate(&exec, graph, 0));
      for (int k = 0; k < 4; ++k) RT(cudaGraphLaunch(exec, s));
      if (i % 5 == 0) RT(cudaStreamSynchronize(s));
      RT(cudaGraphExecDestroy(exec));
      RT(cudaGraphDestroy(graph));
      RT(cudaEventDestroy(fork));
      RT(cudaEventDestroy(join));
    }
    RT(cudaStreamSynchronize(s));
    capturing.fetch_sub(1);
  };
  const double begin = now_s();
  std::thread first([&] { captures(0, cudaStreamCaptureModeThreadLocal); });
  std::thread second([&] { captures(1, cudaStreamCaptureModeRelaxed); });
  cudaStream_t s = make_stream();
  long extra = 0;
  for (int i = 0; i < 20000 || capturing.load() != 0; ++i) {
    if (i < 20000) launch(s, data[2], i);
    else sleep_ms(0.1);
    if (i % 100 == 0) {
      void* memory = nullptr;
      RT(cudaMallocAsync(&memory, 1 << 20, s));
      RT(cudaFreeAsync(memory, s));
      RT(cudaStreamSynchronize(s));
      ++extra;
    }
  }
  first.join();
  second.join();
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  std::uint64_t sum = 1;
  for (auto& each : data) sum = sum_of(each, sum);
  return report(sum, 2.0 * count, took);
}

/// Two graphs in two streams order each other by events that are recorded inside them.
CASE(graph_events) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream(), t = make_stream();
  cudaEvent_t there, back;
  RT(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
  RT(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
  RT(cudaEventRecord(back, t));
  cudaGraph_t first, second;
  cudaGraphExec_t a, b;
  RT(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  RT(cudaStreamWaitEvent(s, back, cudaEventWaitExternal));
  for (int i = 0; i < 6; ++i) launch(s, data, i);
  RT(cudaEventRecordWithFlags(there, s, cudaEventRecordExternal));
  RT(cudaStreamEndCapture(s, &first));
  RT(cudaStreamBeginCapture(t, cudaStreamCaptureModeGlobal));
  RT(cudaStreamWaitEvent(t, there, cudaEventWaitExternal));
  for (int i = 0; i < 6; ++i) launch(t, data, 10 + i);
  RT(cudaEventRecordWithFlags(back, t, cudaEventRecordExternal));
  RT(cudaStreamEndCapture(t, &second));
  RT(cudaGraphInstantiate(&a, first, 0));
  RT(cudaGraphInstantiate(&b, second, 0));
  RT(cudaDeviceSynchronize());
  const int count = count_of(args, 10000);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    RT(cudaGraphLaunch(a, s));
    RT(cudaGraphLaunch(b, t));
    if (i % 20 == 19) RT(cudaEventSynchronize(back));
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

// --- Kinds of launches ----------------------------------------------------------------------------

namespace {
__global__ void overlapped(unsigned* data, unsigned n, unsigned salt) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  cudaTriggerProgrammaticLaunchCompletion();
  unsigned own = salt;
  for (int k = 0; k < 200; ++k) own = mix_one(own, k);
  cudaGridDependencySynchronize();
  if (i < n) data[i] = mix_one(data[i], own);
}
__global__ void whole_grid(unsigned* data, unsigned n, unsigned rounds) {
  cg::grid_group grid = cg::this_grid();
  for (unsigned r = 0; r < rounds; ++r) {
    for (unsigned i = grid.thread_rank(); i < n; i += grid.size()) data[n * ((r + 1) % 2) + i] = mix_one(data[n * (r % 2) + (i + 1) % n], r);
    grid.sync();
  }
}
__global__ void clustered(unsigned* data, unsigned salt) {
  cg::cluster_group cluster = cg::this_cluster();
  __shared__ unsigned mine;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) mine = data[blockIdx.x * blockDim.x];
  cluster.sync();
  const unsigned theirs = *cluster.map_shared_rank(&mine, (cluster.block_rank() + 1) % cluster.num_blocks());
  cluster.sync();
  data[i] = mix_one(data[i], theirs + salt);
}
cudaLaunchConfig_t config_of(cudaStream_t s, unsigned blocks, unsigned threads, cudaLaunchAttribute* attributes, unsigned count) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = s;
  config.attrs = attributes;
  config.numAttrs = count;
  return config;
}
}  // namespace

/// Programmatic dependent launches: in a stream, and in a graph captured from it.
CASE(pdl) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const auto go = [&](unsigned salt) {
    cudaLaunchConfig_t config = config_of(s, kN / 256, 256, &attribute, 1);
    RT(cudaLaunchKernelEx(&config, overlapped, data, kN, salt));
  };
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  go(1);
  RT(cudaStreamSynchronize(s));
  RT(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 50; ++i) go(i);
  RT(cudaStreamEndCapture(s, &graph));
  RT(cudaGraphInstantiate(&exec, graph, 0));
  const int count = count_of(args, 2500);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < 50; ++k) go(i + k);
    RT(cudaGraphLaunch(exec, s));
    if (i % 10 == 9) RT(cudaStreamSynchronize(s));
  }
  RT(cudaStreamSynchronize(s));
  const double took = now_s() - begin;
  return report(sum_of(data), 100.0 * count, took);
}

/// Cooperative launches that fill the GPU, with grid barriers, and clusters.
CASE(coop) {
  cudaDeviceProp prop;
  RT(cudaGetDeviceProperties(&prop, 0));
  int blocks = 0;
  RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, whole_grid, 256, 0));
  unsigned* data = nullptr;
  RT(cudaMalloc(&data, 2 * kN * 4));
  RT(cudaMemset(data, 3, 2 * kN * 4));
  unsigned* other = make_data();
  cudaStream_t s = make_stream(), t = make_stream();
  unsigned n = kN, rounds = 20;
  void* params[] = {&data, &n, &rounds};
  const int grid = blocks * prop.multiProcessorCount;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {4, 1, 1};
  RT(cudaDeviceSynchronize());
  const int count = count_of(args, 6000);
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    RT(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(whole_grid), grid, 256, params, 0, s));
    cudaLaunchConfig_t config = config_of(t, kN / 256, 256, &attribute, 1);
    RT(cudaLaunchKernelEx(&config, clustered, other, static_cast<unsigned>(i)));
    if (i % 20 == 19) RT(cudaDeviceSynchronize());
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  return report(sum_of(data, sum_of(other)), count, took);
}

/// Priorities, memory domains and events of launches.
CASE(attributes) {
  int least = 0, greatest = 0;
  RT(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t low, high;
  RT(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, least));
  RT(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, greatest));
  unsigned* data = make_data();
  unsigned* other = make_data();
  cudaEvent_t begun;
  RT(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
  const int count = count_of(args, 30000);
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    cudaLaunchAttribute attribute[3];
    attribute[0].id = cudaLaunchAttributePriority;
    attribute[0].val.priority = i % 2 ? greatest : least;
    attribute[1].id = cudaLaunchAttributeMemSyncDomain;
    attribute[1].val.memSyncDomain = i % 2 ? cudaLaunchMemSyncDomainRemote : cudaLaunchMemSyncDomainDefault;
    attribute[2].id = cudaLaunchAttributeLaunchCompletionEvent;
    attribute[2].val.launchCompletionEvent.event = begun;
    attribute[2].val.launchCompletionEvent.flags = 0;
    cudaLaunchConfig_t config = config_of(low, kN / 256, 256, attribute, 3);
    RT(cudaLaunchKernelEx(&config, mix, data, kN, static_cast<unsigned>(i), 4u));
    RT(cudaStreamWaitEvent(high, begun, 0));
    launch(high, other, i);
    if (i % 50 == 49) RT(cudaDeviceSynchronize());
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  return report(sum_of(data, sum_of(other)), count, took);
}

// --- Memory ---------------------------------------------------------------------------------------

/// Stream-ordered allocations of changing sizes in four streams.
CASE(pool) {
  cudaMemPool_t pool;
  RT(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t keep = 1ull << 30;
  RT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  std::vector<cudaStream_t> s(4);
  for (auto& each : s) each = make_stream();
  unsigned* data = make_data();
  const int count = count_of(args, 60000);
  RT(cudaDeviceSynchronize());
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    unsigned* memory = nullptr;
    RT(cudaMallocAsync(reinterpret_cast<void**>(&memory), (kN * 4) << (i % 7), s[i % 4]));
    launch(s[i % 4], memory, i, 1);
    RT(cudaFreeAsync(memory, s[i % 4]));
    if (i % 500 == 499) {
      launch(s[0], data, i);
      RT(cudaStreamSynchronize(s[i % 4]));
    }
    if (i % 20000 == 19999) RT(cudaMemPoolTrimTo(pool, 0));
  }
  RT(cudaDeviceSynchronize());
  const double took = now_s() - begin;
  return report(sum_of(data), count, took);
}

/// Much pinned memory, registered and mapped, while kernels read it.
CASE(pinned) {
  const std::size_t bytes = 2ull << 30;
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  const double begin = now_s();
  for (int round = 0; round < 2; ++round) {
    void* pinned = nullptr;
    RT(cudaHostAlloc(&pinned, bytes, cudaHostAllocMapped));
    void* own = mmap(nullptr, bytes / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RT(cudaHostRegister(own, bytes / 4, cudaHostRegisterMapped));
    unsigned *a, *b;
    RT(cudaHostGetDevicePointer(reinterpret_cast<void**>(&a), pinned, 0));
    RT(cudaHostGetDevicePointer(reinterpret_cast<void**>(&b), own, 0));
    for (int i = 0; i < 300; ++i) {
      launch(s, a + i * kN, i);
      launch(s, b + i * kN, i);
      add_from<<<kN / 256, 256, 0, s>>>(data, a + i * kN, kN);
      add_from<<<kN / 256, 256, 0, s>>>(data, b + i * kN, kN);
    }
    RT(cudaStreamSynchronize(s));
    std::memset(pinned, 0, 300 * kN * 4);
    RT(cudaHostUnregister(own));
    RT(cudaFreeHost(pinned));
    munmap(own, bytes / 4);
  }
  return report(sum_of(data), 2, now_s() - begin);
}

/// Managed memory, touched by host and GPU in turn.
CASE(managed) {
  const std::size_t count = 16 << 20;
  unsigned* data = nullptr;
  RT(cudaMallocManaged(&data, count * 4));
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<unsigned>(i);
  cudaStream_t s = make_stream();
  const int rounds = count_of(args, 20);
  std::uint64_t sum = 1;
  const double begin = now_s();
  for (int round = 0; round < rounds; ++round) {
    mix<<<count / 256, 256, 0, s>>>(data, count, round, 4);
    RT(cudaStreamSynchronize(s));
    for (std::size_t i = 0; i < count; i += 1024) sum = sum * 31 + data[i]++;
  }
  return report(sum, rounds, now_s() - begin);
}

// --- Processes ------------------------------------------------------------------------------------

/// Memory and events of another process: the two take turns.
CASE(ipc) {
  const bool child = args.size() > 2;
  const int rounds = 1500;
  cudaEvent_t mine, theirs;
  cudaStream_t s = make_stream();
  RT(cudaEventCreateWithFlags(&mine, cudaEventDisableTiming | cudaEventInterprocess));
  struct Message {
    cudaIpcEventHandle_t event;
    cudaIpcMemHandle_t memory;
  } out{}, in{};
  RT(cudaIpcGetEventHandle(&out.event, mine));
  int to[2], from[2];
  pid_t pid = 0;
  unsigned* data = nullptr;
  if (!child) {
    RT(cudaMalloc(&data, 4 << 20));
    RT(cudaMemset(data, 5, 4 << 20));
    RT(cudaIpcGetMemHandle(&out.memory, data));
    make_pipe(to), make_pipe(from);
    pid = spawn_self({"ipc", std::to_string(to[0]), std::to_string(from[1]), "child"});
  }
  const int read_fd = child ? std::atoi(args[0].c_str()) : from[0];
  const int write_fd = child ? std::atoi(args[1].c_str()) : to[1];
  write_all(write_fd, &out, sizeof out);
  read_all(read_fd, &in, sizeof in);
  RT(cudaIpcOpenEventHandle(&theirs, in.event));
  if (child) RT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data), in.memory, cudaIpcMemLazyEnablePeerAccess));
  launch(s, make_data(), 1);
  RT(cudaStreamSynchronize(s));
  const double begin = now_s();
  char token = 1;
  for (int i = 0; i < rounds; ++i) {
    if (child || i > 0) {
      read_all(read_fd, &token, 1);            // the other one has recorded its event
      RT(cudaStreamWaitEvent(s, theirs, 0));   // and its work need not be done
    }
    for (int k = 0; k < 5; ++k) launch(s, data, 2 * i + child, 50);
    RT(cudaEventRecord(mine, s));
    write_all(write_fd, &token, 1);
  }
  if (!child) {
    read_all(read_fd, &token, 1);
    RT(cudaStreamWaitEvent(s, theirs, 0));
  }
  RT(cudaStreamSynchronize(s));
  const double took = now_s() - begin;
  if (child) return 0;
  if (wait_for(pid) != 0) die("the child failed");
  return report(sum_of(data), rounds, took);
}

/// Kernels of two processes of one priority wait for each other by words in shared host memory: time
/// slices only let them go on.
CASE(mapped_flags) {
  const bool child = !args.empty();
  const int rounds = 40;
  const int fd = child ? std::atoi(args[0].c_str()) : memfd_create("hostile", 0);
  if (!child && ftruncate(fd, 4096) != 0) die("ftruncate");
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  auto* words = static_cast<unsigned*>(page);
  pid_t pid = 0;
  if (!child) pid = spawn_self({"mapped_flags", std::to_string(fd)});
  RT(cudaHostRegister(page, 4096, cudaHostRegisterMapped));
  unsigned* seen = nullptr;
  RT(cudaHostGetDevicePointer(reinterpret_cast<void**>(&seen), page, 0));
  unsigned* gave_up = make_data(0);
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  cudaFuncAttributes attributes;
  RT(cudaFuncGetAttributes(&attributes, await));
  launch(s, data, 1);
  RT(cudaStreamSynchronize(s));
  __atomic_fetch_add(&words[2], 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&words[2], __ATOMIC_SEQ_CST) < 2) sleep_ms(1);
  const double begin = now_s();
  const unsigned own = child ? 1 : 0;
  for (int i = 0; i < rounds; ++i) {
    await<<<1, 1, 0, s>>>(seen + own, i + (child ? 1 : 0), gave_up);
    launch(s, data, i);
    RT(cudaStreamSynchronize(s));
    __atomic_store_n(&words[1 - own], i + 1, __ATOMIC_SEQ_CST);
  }
  unsigned gave = 0;
  RT(cudaMemcpy(&gave, gave_up, 4, cudaMemcpyDeviceToHost));
  const double took = now_s() - begin;
  if (child) return gave == 0 ? 0 : 5;
  const int status = wait_for(pid);
  return report(sum_of(data, gave), rounds, took, "gave_up=" + std::to_string(gave) + " child=" + std::to_string(status));
}

/// Forks before the driver is used; parent and children use it then.
CASE(fork_before) {
  const double begin = now_s();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      unsigned* data = make_data();
      for (int k = 0; k < 20000; ++k) {
        launch(nullptr, data, k);
        if (k % 100 == 0) RT(cudaDeviceSynchronize());
      }
      RT(cudaDeviceSynchronize());
      _exit(sum_of(data) != 0 ? 0 : 1);
    }
    children.push_back(pid);
  }
  unsigned* data = make_data();
  for (int k = 0; k < 20000; ++k) {
    launch(nullptr, data, k);
    if (k % 100 == 0) RT(cudaDeviceSynchronize());
  }
  RT(cudaDeviceSynchronize());
  for (const pid_t pid : children) {
    if (wait_for(pid) != 0) die("a child failed");
  }
  return report(sum_of(data), 5, now_s() - begin);
}

/// Forks after the driver is used, while threads launch; children do not use it: they exit, call
/// exit handlers, exec, or stay for a while.
CASE(fork_after) {
  unsigned* data = make_data();
  unsigned* other = make_data();
  std::atomic<bool> stop{false};
  std::thread launcher([&] {
    cudaStream_t s = make_stream();
    for (int i = 0; i < 40000; ++i) {
      launch(s, other, i);
      if (i % 100 == 0) RT(cudaStreamSynchronize(s));
    }
    RT(cudaStreamSynchronize(s));
    stop = true;
  });
  cudaStream_t s = make_stream();
  launch(s, data, 1);
  const int count = count_of(args, 60);
  const double begin = now_s();
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (i % 4 == 0) _exit(0);
      if (i % 4 == 1) {
        std::vector<int> some(100000, i);
        execl("/bin/true", "true", nullptr);
      }
      if (i % 4 == 2) {
        std::thread([] { sleep_ms(20); }).join();
        _exit(0);
      }
      int count_devices = 0;
      cudaGetDeviceCount(&count_devices);  // an error, and no hang
      _exit(0);
    }
    if (pid < 0) die("fork");
    children.push_back(pid);
    launch(s, data, i);
    RT(cudaStreamSynchronize(s));
  }
  for (const pid_t pid : children) {
    if (wait_for(pid) != 0) die("a child failed");
  }
  const double took = now_s() - begin;
  launcher.join();
  return report(sum_of(data, sum_of(other)), count, took);
}

/// Children end in every way in the middle of their work; then this process works as if nothing had
/// been. `exits` how: _exit, exit, abort, SIGKILL from outside, a fault, exit while another thread launches.
CASE(endings) {
  if (!args.empty()) {
    const std::string how = args[0];
    struct rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    cudaStream_t s = make_stream();
    unsigned* data = make_data();
    std::thread other([&] {
      cudaStream_t t = make_stream();
      unsigned* more = make_data();
      for (unsigned i = 0;; ++i) {
        mix<<<16, 256, 0, t>>>(more, kN, i, 500);
        if (cudaGetLastError() != cudaSuccess) sleep_ms(1000);
      }
    });
    other.detach();
    const double begin = now_s();
    for (int i = 0; now_s() - begin < 0.3; ++i) {
      launch(s, data, i, 500);
      if (i % 50 == 0) RT(cudaStreamSynchronize(s));
    }
    if (how == "_exit") _exit(0);
    if (how == "exit") std::exit(0);
    if (how == "quick_exit") std::quick_exit(0);
    if (how == "abort") std::abort();
    if (how == "segv") raise(SIGSEGV);
    if (how == "exec") execl("/bin/true", "true", nullptr);
    if (how == "thread_exit") std::thread([] { std::exit(0); }).join();
    sleep_ms(60000);  // killed from outside
    return 0;
  }
  const double begin = now_s();
  int done = 0;
  for (const char* how : {"_exit", "exit", "quick_exit", "abort", "segv", "exec", "thread_exit", "kill", "term"}) {
    const double from = now_s();
    const pid_t pid = spawn_self({"endings", how});
    if (std::string(how) == "kill" || std::string(how) == "term") {
      sleep_ms(1200);
      kill(pid, std::string(how) == "kill" ? SIGKILL : SIGTERM);
    }
    const int status = wait_for(pid);
    const bool by_signal = WIFSIGNALED(status);
    const bool signal_meant = std::string(how) == "abort" || std::string(how) == "segv" || std::string(how) == "kill" || std::string(how) == "term";
    if (by_signal != signal_meant) die(std::string(how) + ": ended with status " + std::to_string(status));
    if (now_s() - from > 15) die(std::string(how) + ": took too long");
    ++done;
  }
  unsigned* data = make_data();
  for (int i = 0; i < 20000; ++i) launch(nullptr, data, i);
  RT(cudaDeviceSynchronize());
  return report(sum_of(data), done, now_s() - begin);
}

/// Eight processes of one priority on one GPU.
CASE(eight) {
  const double begin = now_s();
  std::vector<pid_t> pids;
  for (int i = 0; i < 8; ++i) pids.push_back(spawn_self({"tiny", "40000"}));
  for (const pid_t pid : pids) {
    if (wait_for(pid) != 0) die("a child failed");
  }
  return report(8, 8, now_s() - begin);
}
