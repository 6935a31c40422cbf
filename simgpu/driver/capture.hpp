// Stream capture: calls on a stream become nodes of a graph. State is guarded by Graphs::mutex,
// except Stream::capturing and Captures' count, which are there to be looked at without it.
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
  bool into_existing = false;  // the application's own graph
  bool invalidated = false;
  std::vector<std::shared_ptr<Stream>> streams;
};

// For calls that are unsafe during captures: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when the
// calling thread's mode forbids them now, after ending the captures concerned.
CUresult check_unsafe_call();

// For calls on a stream that cannot become a node. Not capturing: CUDA_SUCCESS.
CUresult check_not_capturing(Stream& stream);

// For cuCtxSynchronize: no mode permits it while a stream of the context captures.
CUresult check_no_capture_in(const Context& context);

// The stream ends: so does a capture it takes part in.
void abandon_capture(Stream& stream);

// With Graphs::mutex held: the capture's streams are ordinary ones again.
void close_capture(const std::shared_ptr<Capture>& capture);

// For work on the legacy stream while a stream it synchronises with captures.
CUresult check_implicit_dependency(const Stream& stream);

CUresult add_captured_node(Stream& stream, NodeContent content);

// cuEventRecord and cuStreamWaitEvent where a capture is concerned. `handled` tells whether it
// was; if not, the call is an ordinary one.
CUresult capture_record(Event& event, Stream& stream, bool& handled);
CUresult capture_wait(const std::shared_ptr<Stream>& stream, Event& event, bool& handled);

// For host calls on an event whose last record was captured: what they return.
CUresult refuse_captured(const Event& event);

}  // namespace sluice::simgpu
