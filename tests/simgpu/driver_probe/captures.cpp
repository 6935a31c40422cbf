// What a capture allows, and what ends it.
#include <cstdio>
#include <thread>

#include "tests/simgpu/driver_probe/probe.hpp"
#include "tests/simgpu/driver_probe/queries.hpp"

namespace sluice::simgpu::probe {

void calls_in_captures(const std::string& title, CUstream captured, CUstreamCaptureMode mode,
                       bool relaxed_thread, bool other_thread) {
  for (const Call& call : calls_to_try()) {
    CUgraph graph = nullptr;
    cuStreamBeginCapture(captured, mode);
    CUresult answer = CUDA_SUCCESS;
    const auto run = [&] {
      cuCtxSetCurrent(context);
      CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      if (relaxed_thread) cuThreadExchangeStreamCaptureMode(&thread_mode);
      answer = call.run();
      if (relaxed_thread) cuThreadExchangeStreamCaptureMode(&thread_mode);
    };
    if (other_thread) {
      std::thread(run).join();
    } else {
      run();
    }
    const CUstreamCaptureStatus status = capture_status(captured);
    const CUresult end = cuStreamEndCapture(captured, &graph);
    if (graph != nullptr) cuGraphDestroy(graph);
    std::printf("%s: %s: %d, capture %d, end %d\n", title.c_str(), call.name, answer, status, end);
    std::fflush(stdout);
    cuCtxSynchronize();
  }
}

void capture_rules() {
  CUgraph graph = nullptr;
  CUevent inside = nullptr;
  cuEventCreate(&inside, CU_EVENT_DISABLE_TIMING);
  say("capture: begin on legacy", cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  say("capture: end without begin", cuStreamEndCapture(stream, &graph));
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  say("capture: begin twice", cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  say("capture: status after begin twice", capture_status(stream));
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] { elsewhere = cuStreamEndCapture(stream, &graph); }).join();
  say("capture: end in another thread", elsewhere);
  say("capture: status after it", capture_status(stream));
  say("capture: wait for an event recorded outside", cuStreamWaitEvent(stream, recorded, 0));
  say("capture: status after it", capture_status(stream));
  say("capture: launch after it", launch(stream));
  say("capture: end after it", cuStreamEndCapture(stream, &graph));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  say("capture: record", cuEventRecord(inside, stream));
  say("capture: query of the captured event", cuEventQuery(inside));
  say("capture: status after it", capture_status(stream));
  cuStreamEndCapture(stream, &graph);
  say("capture over: query of the captured event", cuEventQuery(inside));
  say("capture over: synchronise with the captured event", cuEventSynchronize(inside));
  say("capture over: wait for the captured event", cuStreamWaitEvent(other, inside, 0));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  cuEventRecord(inside, stream);
  cuStreamWaitEvent(other, inside, 0);
  say("joined stream: status", capture_status(other));
  launch(other);
  say("joined stream: end on it", cuStreamEndCapture(other, &graph));
  say("joined stream: status after it", capture_status(stream));
  say("joined stream: end", cuStreamEndCapture(stream, &graph));
  say("joined stream: status after the end", capture_status(other));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuEventRecord(inside, stream);
  cuStreamWaitEvent(other, inside, 0);
  say("joined without work: end", cuStreamEndCapture(stream, &graph));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(stream);
  cuEventRecord(inside, stream);
  say("two captures: merge", cuStreamWaitEvent(other, inside, 0));
  say("two captures: status of the first", capture_status(stream));
  say("two captures: status of the second", capture_status(other));
  say("two captures: end of the first", cuStreamEndCapture(stream, &graph));
  say("two captures: end of the second", cuStreamEndCapture(other, &graph));

  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  say("capture: destroy the stream", cuStreamDestroy(stream));
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuCtxSynchronize();
}

}  // namespace sluice::simgpu::probe
