// Streams that wait for a word in memory.
#include <atomic>

#include "driver.hpp"

/// Two streams hand a token to each other by memory operations, without the host.
CASE(waitvalue) {
  Primary gpu;
  Kernel mix;
  CUstream s[2] = {make_stream(), make_stream()};
  const CUdeviceptr data = make_data();
  CUdeviceptr token = 0;
  CU(cuMemAlloc(&token, 8));
  CU(cuMemsetD32(token, 0, 2));
  finish_all();
  const Run run = timed(count_of(args, 90000), finish_all, [&](int i) {
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned turn = 2 * i + half;
      CU(cuStreamWaitValue32(s[half], token, turn, CU_STREAM_WAIT_VALUE_EQ));
      mix(s[half], data, turn);
      CU(cuStreamWriteValue32(s[half], token, turn + 1, 0));
    }
    if (i % 50 == 49) finish_all();
  });
  return report(sum_of(data), run);
}

/// Work is queued behind a value that the host writes only later, in one stream; a second stream
/// goes on, is made anew and destroyed meanwhile.
CASE(waitvalue_host) {
  const auto [gpu, mix, held, data] = Work();
  const CUdeviceptr other = make_data();
  const MappedWord word;
  mix(held, data, 0);
  finish_all();
  const Run run = timed(count_of(args, 1500), [&](int i) {
    CU(cuStreamWaitValue32(held, word.seen, i + 1, CU_STREAM_WAIT_VALUE_GEQ));
    for (unsigned k = 0; k < 100; ++k) mix(held, data, k);
    CUstream fresh = make_stream();
    for (unsigned k = 0; k < 20; ++k) mix(fresh, other, k);
    finish(fresh);
    CUevent event;
    CU(cuEventCreate(&event, 0));
    CU(cuEventRecord(event, held));
    if (cuEventQuery(event) != CUDA_ERROR_NOT_READY) die("work behind an unwritten value has run");
    CU(cuStreamDestroy(fresh));
    word.set(i + 1);
    CU(cuEventSynchronize(event));
    CU(cuEventDestroy(event));
  });
  return report(sum_of(data, sum_of(other)), run);
}

/// The queue of one stream is full behind a value that is not written; meanwhile other streams
/// begin, work, capture and end. The note names what took longest.
CASE(fullqueue) {
  Primary gpu;
  Kernel mix;
  const CUdeviceptr data = make_data(), other = make_data();
  const MappedWord word;
  CUstream side = make_stream();
  mix(side, other, 0);
  finish_all();
  double worst = 0;
  const char* worst_at = "";
  const auto watched = [&](const char* what, auto call) {
    const double took = timed(1, [&](int) { call(); }).seconds;
    if (took > worst) worst = took, worst_at = what;
  };
  const Run run = timed(count_of(args, 4), [&](int i) {
    CUstream fresh = make_stream();
    mix(fresh, other, 3);
    finish(fresh);
    std::vector<CUstream> unused(16);
    for (CUstream& each : unused) each = make_stream();
    std::thread filler([&] {
      CU(cuCtxSetCurrent(gpu.context));
      CU(cuStreamWaitValue32(CU_STREAM_PER_THREAD, word.seen, i + 1, CU_STREAM_WAIT_VALUE_GEQ));
      for (unsigned k = 0; k < 2000; ++k) mix(CU_STREAM_PER_THREAD, data, k);
      finish(CU_STREAM_PER_THREAD);
    });
    std::atomic<bool> done{false};
    std::thread rescue([&] {  // so that it does not hang for good, with or without Sluice
      for (int k = 0; k < 800 && !done; ++k) sleep_ms(10);
      word.set(i + 1);
    });
    sleep_ms(150);
    for (CUstream each : unused) {  // their first launches
      sleep_ms(1);
      watched("launch", [&] { mix(each, other, 1); });
      finish(each);
    }
    watched("synchronise", [&] { finish(side); });
    CUgraph graph;
    watched("begin capture",
            [&] { CU(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); });
    mix(side, other, 2);
    watched("end capture", [&] { CU(cuStreamEndCapture(side, &graph)); });
    CU(cuGraphDestroy(graph));
    done = true;  // a real driver blocks creating and destroying streams here
    rescue.join();
    filler.join();
    CU(cuStreamDestroy(fresh));
    for (CUstream each : unused) CU(cuStreamDestroy(each));
  });
  char note[96];
  std::snprintf(note, sizeof note, "worst_ms=%.0f in %s", worst * 1e3, worst_at);
  return report(sum_of(data, sum_of(other)), run, note);
}
