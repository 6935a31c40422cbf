// Stream capture: calls on a stream become nodes of a graph. Graphs::mutex guards the state. Only
// Stream::capturing and the number of captures may be read without it.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "simgpu/driver/api.hpp"
#include "simgpu/driver/graph.hpp"

namespace sluice::simgpu {

struct Context;
struct Event;
struct Stream;

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id owner;
  Stream* origin = nullptr;
  std::shared_ptr<Graph> graph;
  bool into_existing = false;  // the graph belongs to the application
  bool invalidated = false;
  std::vector<std::shared_ptr<Stream>> streams;
};

// For calls that are unsafe during captures. If the calling thread's mode forbids them now, ends
// the captures concerned and returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
CUresult check_unsafe_call();

// For calls on a stream that cannot become a node. Returns CUDA_SUCCESS if the stream is not
// capturing.
CUresult check_not_capturing(Stream& stream);

// For cuCtxSynchronize: no mode permits it while a stream of the context captures.
CUresult check_no_capture_in(const Context& context);

// For the end of a stream, which also ends the stream's capture.
void abandon_capture(Stream& stream);

// Makes the streams of the capture ordinary again. Call with Graphs::mutex held.
void close_capture(const std::shared_ptr<Capture>& capture);

// For work on the legacy stream while a stream captures with which it synchronises.
CUresult check_implicit_dependency(const Stream& stream);

CUresult add_captured_node(Stream& stream, NodeContent content);

// cuEventRecord and cuStreamWaitEvent for captures. If `handled` is false, no capture is concerned
// and the call is an ordinary one.
CUresult capture_record(Event& event, Stream& stream, bool& handled);
CUresult capture_wait(const std::shared_ptr<Stream>& stream, Event& event, bool& handled);

// The error of host calls on an event whose last record was captured.
CUresult refuse_captured(const Event& event);

}  // namespace sluice::simgpu
