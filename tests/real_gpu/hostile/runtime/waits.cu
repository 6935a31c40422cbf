// Kernels that wait for other kernels or for the host, a long kernel, and work that the GPU asks
// for.
#include <condition_variable>
#include <mutex>

#include "runtime.cuh"

static __global__ void meet(unsigned* counter, unsigned want, unsigned* gave_up) {
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

/// A kernel in each of N streams; each waits until all have begun.
static int meet_in(int streams, int rounds) {
  const auto s = make_streams(streams);
  unsigned* words = make_data(0);
  load(meet);
  meet<<<1, 1, 0, s[0]>>>(words + 64, 1, words + 1);
  finish_all();
  const double begin = now_s();
  unsigned gave_up = 0;
  int round = 0;
  for (; round < rounds && gave_up == 0; ++round) {
    for (auto& each : s) meet<<<1, 1, 0, each>>>(words, (round + 1) * streams, words + 1);
    if (round % 8 == 7) {
      finish_all();
      gave_up = read_word(words + 1);
    }
  }
  finish_all();
  gave_up = read_word(words + 1);
  const double took = now_s() - begin;
  return report(gave_up, {static_cast<double>(round), took}, "gave_up=" + std::to_string(gave_up));
}

CASE(meet8) { return meet_in(8, count_of(args, 20000)); }
CASE(meet32) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  return meet_in(32, count_of(args, 8000));
}
CASE(meet24on8) { return meet_in(24, count_of(args, 1500)); }

/// Graphs, events and memory that are made while a kernel waits for the host.
CASE(spingraph) {
  unsigned* seen = nullptr;
  unsigned* word = make_mapped(&seen);
  unsigned* gave_up = make_data(0);
  unsigned* data = make_data();
  cudaStream_t waits = make_stream(), s = make_stream();
  load(await);
  load(mix);
  finish_all();
  const Run run = timed(count_of(args, 800), [&](int i) {
    await<<<1, 1, 0, waits>>>(seen, i + 1, gave_up);  // the first work of the process, in round 0
    cudaGraph_t graph = chain(s, data, 100, 0, cudaStreamCaptureModeThreadLocal);
    cudaGraphExec_t exec = instantiate(graph);
    for (int k = 0; k < 5; ++k) CU(cudaGraphLaunch(exec, s));
    cudaEvent_t e = make_event(cudaEventDefault);
    CU(cudaEventRecord(e, s));
    CU(cudaEventSynchronize(e));
    if (cudaStreamQuery(waits) != cudaErrorNotReady) die("the kernel gave up, or did not wait");
    __atomic_store_n(word, i + 1, __ATOMIC_SEQ_CST);
    finish(waits);
    CU(cudaEventDestroy(e));
    CU(cudaGraphExecDestroy(exec));
    CU(cudaGraphDestroy(graph));
  });
  const unsigned gave = read_word(gave_up);
  return report(sum_of(data, gave), run, "gave_up=" + std::to_string(gave));
}

static __global__ void serve(volatile unsigned* ask, volatile unsigned* answer, unsigned last,
                             unsigned* gave_up) {
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

/// One kernel that serves requests of the host for seconds.
CASE(persistent) {
  unsigned *ask_seen, *answer_seen;
  unsigned* ask = make_mapped(&ask_seen);
  volatile unsigned* answer = make_mapped(&answer_seen);
  unsigned* gave_up = make_data(0);
  cudaStream_t s = make_stream();
  const unsigned count = count_of(args, 250000);
  finish_all();
  const double begin = now_s();
  serve<<<1, 1, 0, s>>>(ask_seen, answer_seen, count, gave_up);
  for (unsigned i = 1; i <= count; ++i) {
    __atomic_store_n(ask, i, __ATOMIC_SEQ_CST);
    while (answer[0] != i) {
      if (now_s() - begin > 60) die("the persistent kernel does not answer");
    }
  }
  finish(s);
  const double took = now_s() - begin;
  return report(answer[1], {static_cast<double>(count), took});
}

static __global__ void long_work(unsigned* data, unsigned long long steps) {
  unsigned x = data[threadIdx.x];
  for (unsigned long long i = 0; i < steps; ++i) x = mix_one(x, static_cast<unsigned>(i));
  data[threadIdx.x] = x;
}

/// One kernel of seconds, then small ones.
CASE(longkernel) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  launch(s, data, 1);
  finish_all();
  const double begin = now_s();
  long_work<<<132, 256, 0, s>>>(data, 200'000'000ull);
  const double first = now_s();
  finish(s);
  const double middle = now_s();
  for (int i = 0; i < 20000; ++i) launch(s, data, i);
  finish(s);
  const double end = now_s();
  return report(sum_of(data), {1, end - begin},
                "launch_us=" + std::to_string((first - begin) * 1e6) +
                    " kernel_s=" + std::to_string(middle - begin));
}

/// Host functions tell another thread to launch more: each piece of work asks for the next.
CASE(hostfunc) {
  struct State {
    std::mutex mutex;
    std::condition_variable more;
    int asked = 0;
  } state;
  unsigned* data = make_data();
  cudaStream_t s = make_stream(), t = make_stream();
  const int count = count_of(args, 25000);
  finish_all();
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
      cudaEvent_t e = make_event();
      launch(s, data, done);
      CU(cudaEventRecord(e, s));
      CU(cudaStreamWaitEvent(t, e, 0));
      launch(t, data, done + 1);
      CU(cudaLaunchHostFunc(t, ask, &state));
      CU(cudaEventRecord(e, t));
      CU(cudaStreamWaitEvent(s, e, 0));
      CU(cudaEventDestroy(e));
    }
  });
  ask(&state);
  worker.join();
  finish_all();
  const double took = now_s() - begin;
  return report(sum_of(data), {static_cast<double>(count), took});
}
