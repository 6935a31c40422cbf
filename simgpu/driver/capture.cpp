#include "simgpu/driver/capture.hpp"

#include <algorithm>

#include "simgpu/driver/capture_mode.hpp"
#include "simgpu/driver/driver.hpp"

namespace sluice::simgpu {
namespace {

bool is_blocking(const Stream& stream) { return (stream.flags & CU_STREAM_NON_BLOCKING) == 0; }

// The capture for which the legacy stream would have to wait, or null.
Capture* implicit_with(const Stream& stream) {
  if (stream.channel->kind != ChannelKind::kLegacy) return nullptr;
  for (const auto& capture : driver().graphs.captures) {
    for (const auto& other : capture->streams) {
      if (other->context == stream.context && is_blocking(*other)) return capture.get();
    }
  }
  return nullptr;
}

void add_links(std::vector<Link>& links, const std::vector<Link>& more) {
  for (const Link& link : more) {
    const bool there = std::any_of(links.begin(), links.end(),
                                   [&](const Link& other) { return other.node == link.node; });
    if (!there) links.push_back(link);
  }
}

CUgraphEdgeData programmatic_edge() {
  CUgraphEdgeData data{};
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  return data;
}

}  // namespace

CUresult check_unsafe_call() {
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (driver().graphs.open_captures == 0 || mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(driver().graphs.mutex);
  CUresult status = CUDA_SUCCESS;
  for (const auto& capture : driver().graphs.captures) {
    const bool own = capture->owner == std::this_thread::get_id() &&
                     capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !global) continue;
    capture->invalidated = true;
    status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return status;
}

CUresult check_no_capture_in(const Context& context) {
  if (driver().graphs.open_captures == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(driver().graphs.mutex);
  CUresult status = CUDA_SUCCESS;
  for (const auto& capture : driver().graphs.captures) {
    if (capture->origin->context.get() != &context) continue;
    capture->invalidated = true;
    status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return status;
}

void close_capture(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : capture->streams) {
    stream->capturing = false;
    stream->capture_links.clear();
    stream->capture.reset();
  }
  std::erase(driver().graphs.captures, capture);
  driver().graphs.open_captures = driver().graphs.captures.size();
}

void abandon_capture(Stream& stream) {
  if (!stream.capturing) return;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return;
  if (!capture->into_existing) driver().graphs.graphs.take(capture->graph->handle);
  close_capture(capture);
}

CUresult check_not_capturing(Stream& stream) {
  if (driver().graphs.open_captures == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(driver().graphs.mutex);
  if (stream.capture) {
    const bool was_invalid = std::exchange(stream.capture->invalidated, true);
    return was_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                       : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  Capture* implicit = implicit_with(stream);
  if (implicit == nullptr) return CUDA_SUCCESS;
  implicit->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult check_implicit_dependency(const Stream& stream) {
  if (driver().graphs.open_captures == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(driver().graphs.mutex);
  return implicit_with(stream) != nullptr ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult add_captured_node(Stream& stream, NodeContent content) {
  const std::lock_guard lock(driver().graphs.mutex);
  if (!stream.capture || stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (content.programmatic) {
    for (Link& link : stream.capture_links) {
      if (link.node->content.type == CU_GRAPH_NODE_TYPE_KERNEL) link.data = programmatic_edge();
    }
  }
  Node& node = stream.capture->graph->add(std::move(content), stream.capture_links);
  stream.capture_links = {{&node, kPlainEdge}};
  return CUDA_SUCCESS;
}

CUresult capture_record(Event& event, Stream& stream, bool& handled) {
  handled = false;
  if (driver().graphs.open_captures == 0 && !event.in_capture) return CUDA_SUCCESS;
  const std::lock_guard lock(driver().graphs.mutex);
  event.captured.reset();
  event.in_capture = false;
  if (!stream.capture) return CUDA_SUCCESS;
  handled = true;
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.captured = stream.capture;
  event.captured_links = stream.capture_links;
  event.in_capture = true;
  return CUDA_SUCCESS;
}

CUresult refuse_captured(const Event& event) {
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Capture> capture = event.captured.lock();
  if (!capture) return CUDA_ERROR_INVALID_VALUE;
  capture->invalidated = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_wait(const std::shared_ptr<Stream>& stream, Event& event, bool& handled) {
  handled = false;
  if (driver().graphs.open_captures == 0 && !event.in_capture) return CUDA_SUCCESS;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Capture> of_event = event.in_capture ? event.captured.lock() : nullptr;
  handled = event.in_capture || stream->capture;
  if (event.in_capture && !of_event) return CUDA_ERROR_INVALID_VALUE;
  if (!handled) return CUDA_SUCCESS;
  const auto fail = [&](CUresult status) {
    if (of_event) of_event->invalidated = true;
    if (stream->capture) stream->capture->invalidated = true;
    return status;
  };
  if ((of_event && of_event->invalidated) || (stream->capture && stream->capture->invalidated)) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (!of_event) return fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (stream->channel->kind == ChannelKind::kLegacy) {
    return fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  if (stream->capture && stream->capture != of_event) {
    return fail(CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!stream->capture) {
    stream->capture = of_event;
    stream->capture_links.clear();
    stream->capturing = true;
    of_event->streams.push_back(stream);
  }
  add_links(stream->capture_links, event.captured_links);
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu
