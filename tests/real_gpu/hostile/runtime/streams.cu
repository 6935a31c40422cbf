// Streams of every kind, and events.
#include "runtime.cuh"

/// The runtime, one stream, back to back.
CASE(tiny) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  launch(s, data, 1);
  finish_all();
  const Run run = timed(count_of(args, 300000), finish_of(s), [&](int i) {
    launch(s, data, i);
    if (i % 10000 == 9999) finish(s);
  });
  return report(sum_of(data), run);
}

CASE(streams100) {
  const auto s = make_streams(100);
  const auto data = make_data_of(100);
  for (int i = 0; i < 100; ++i) launch(s[i], data[i], 1);
  finish_all();
  const Run run = timed(count_of(args, 250000), finish_all, [&](int i) {
    launch(s[i % 100], data[i % 100], i);
    if (i % 2000 == 1999) finish(s[i / 2000 % 100]);
  });
  return report(sum_of(data), run);
}

/// A stream for each piece of work, destroyed while the work runs.
CASE(streamchurn) {
  unsigned* data = make_data();
  const auto more = make_data_of(8);
  finish_all();
  const Run run = timed(count_of(args, 32000), finish_all, [&](int i) {
    cudaStream_t s = make_stream(i % 2 ? cudaStreamNonBlocking : cudaStreamDefault);
    cudaEvent_t e = make_event(cudaEventDefault);
    for (int k = 0; k < 5; ++k) launch(s, more[i % 8], k);
    CU(cudaEventRecord(e, s));
    CU(cudaStreamDestroy(s));
    if (i % 8 == 7) CU(cudaEventSynchronize(e));
    if (i % 64 == 63) {
      finish_all();
      launch(nullptr, data, i);
    }
    CU(cudaEventDestroy(e));
    if (i % 8 == 7) finish_all();
  });
  return report(sum_of(more, sum_of(data)), run);
}

/// The legacy and a per-thread default stream, a blocking and a non-blocking one: results depend on
/// the order that the default streams promise.
CASE(legacymix) {
  unsigned* data = make_data();
  unsigned* other = make_data(9);
  cudaStream_t blocking = make_stream(cudaStreamDefault), free = make_stream();
  finish_all();
  const Run run = timed(count_of(args, 25000), [&](int i) {
    launch(cudaStreamLegacy, data, i);
    launch(blocking, data, i + 1);
    launch(nullptr, data, i + 2);
    launch(cudaStreamPerThread, data, i + 3);
    add(cudaStreamLegacy, data, other);
    finish(cudaStreamLegacy);  // `free` waits for no other stream
    launch(free, other, i);
    finish(free);
    if (i % 10 == 0) finish(cudaStreamPerThread);
    if (i % 10 == 5) finish(nullptr);
    finish_all();
  });
  return report(sum_of(data, sum_of(other)), run);
}

/// Resets the device in the middle and goes on, with streams, events and graphs alive.
CASE(reset) {
  std::uint64_t sum = 1;
  const Run run = timed(4, [&](int round) {
    unsigned* data = make_data();
    cudaStream_t s = make_stream();
    cudaGraphExec_t exec = instantiate(chain(s, data, 50));
    for (int i = 0; i < 200; ++i) {
      CU(cudaGraphLaunch(exec, s));
      for (int k = 0; k < 10; ++k) launch(s, data, k);
    }
    finish(s);
    sum = sum_of(data, sum);
    for (int i = 0; i < 500; ++i) launch(s, data, i, 2000);  // still running at the reset
    if (round % 2) finish(s);
    CU(cudaDeviceReset());
  });
  return report(sum, {4 * 200 * 60, run.seconds});
}

/// Queries of events that are done, between launches, as caching allocators make them.
CASE(eventpoll) {
  unsigned* data = make_data();
  cudaStream_t s = make_stream(), busy = make_stream();
  unsigned* slow = make_data();
  std::vector<cudaEvent_t> done(16);
  for (auto& e : done) {
    e = make_event();
    CU(cudaEventRecord(e, s));
  }
  finish_all();
  const Run run = timed(count_of(args, 35000), finish_all, [&](int i) {
    if (i % 200 == 0) mix<<<1, 32, 0, busy>>>(slow, 32, i, 100000);
    launch(s, data, i);
    for (auto& e : done) CU(cudaEventQuery(e));
    if (i % 500 == 499) finish(s);
  });
  return report(sum_of(data, sum_of(slow)), run);
}
