// The calls that begin, end and query captures.
#include <algorithm>
#include <set>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/capture_mode.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

thread_local CUstreamCaptureMode current_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool is_mode(int mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

void reach(const Node& node, std::set<const Node*>& reached) {
  if (!reached.insert(&node).second) return;
  for (const Link& link : node.dependencies) reach(*link.node, reached);
}

// Whether every stream that joined the capture was joined back.
bool all_joined(const Capture& capture) {
  std::set<const Node*> reached;
  for (const Link& link : capture.origin->capture_links) reach(*link.node, reached);
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const auto& stream) {
    return std::all_of(stream->capture_links.begin(), stream->capture_links.end(),
                       [&](const Link& link) { return reached.count(link.node) != 0; });
  });
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
               std::vector<Link> links) {
  static std::uint64_t next_id = 1;
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  std::shared_ptr<Stream> stream;
  if (const CUresult status = find_stream(handle, stream); status != CUDA_SUCCESS) return status;
  if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->channel->kind == ChannelKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(driver().graphs.mutex);
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = next_id++;
  capture->mode = mode;
  capture->owner = std::this_thread::get_id();
  capture->origin = stream.get();
  capture->into_existing = graph != nullptr;
  capture->graph = graph ? std::move(graph) : std::make_shared<Graph>(driver().graphs.nodes);
  if (!capture->into_existing) {
    capture->graph->handle = driver().graphs.graphs.add(capture->graph);
  }
  capture->streams.push_back(stream);
  stream->capture = capture;
  stream->capture_links = std::move(links);
  stream->capturing = true;
  driver().graphs.captures.push_back(std::move(capture));
  driver().graphs.open_captures = driver().graphs.captures.size();
  return CUDA_SUCCESS;
}

CUresult end(Stream& stream, CUgraph* out) {
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  CUresult status = CUDA_SUCCESS;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->owner != std::this_thread::get_id()) {
    status = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (capture->invalidated) {
    status = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!all_joined(*capture)) {
    status = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (status == CUDA_SUCCESS) {
    *out = capture->graph->handle;
  } else if (!capture->into_existing) {
    driver().graphs.graphs.take(capture->graph->handle);
  }
  close_capture(capture);
  return status;
}

struct CaptureInfo {
  CUstreamCaptureStatus* status;
  cuuint64_t* id;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  std::size_t* count = nullptr;
  bool edges_asked = false;
};

CUresult give_info(CUstream handle, const CaptureInfo& out) {
  return with_stream(handle, [&](Stream& stream) {
    if (const CUresult status = check_implicit_dependency(stream); status != CUDA_SUCCESS) {
      return status;
    }
    const std::lock_guard lock(driver().graphs.mutex);
    if (out.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out.status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!stream.capture) return CUDA_SUCCESS;
    *out.status = stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (stream.capture->invalidated) return CUDA_SUCCESS;
    stream.info_nodes.clear();
    stream.info_edges.clear();
    bool plain = true;
    for (const Link& link : stream.capture_links) {
      stream.info_nodes.push_back(link.node->handle);
      stream.info_edges.push_back(link.data);
      plain &= is_plain(link.data);
    }
    if (!plain && out.nodes != nullptr && out.edges == nullptr) return CUDA_ERROR_LOSSY_QUERY;
    if (out.id != nullptr) *out.id = stream.capture->id;
    if (out.graph != nullptr) *out.graph = stream.capture->graph->handle;
    if (out.nodes != nullptr) *out.nodes = stream.info_nodes.data();
    if (out.edges != nullptr) *out.edges = plain ? nullptr : stream.info_edges.data();
    if (out.count != nullptr) *out.count = stream.info_nodes.size();
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUstreamCaptureMode sluice::simgpu::thread_capture_mode() { return current_mode; }

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (mode == nullptr || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, current_mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(hStream, mode, nullptr, {});
}
CUresult cuStreamBeginCapture(CUstream hStream) {
  return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  std::vector<Link> links;
  std::shared_ptr<Graph> graph;
  {
    const std::lock_guard lock(driver().graphs.mutex);
    graph = driver().graphs.graphs.find(hGraph);
    if (!graph || !find_nodes(*graph, dependencies, dependencyData, numDependencies, links)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return begin(hStream, mode, std::move(graph), std::move(links));
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return with_stream(hStream, [&](Stream& stream) { return end(stream, phGraph); });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return give_info(hStream, {captureStatus, nullptr});
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  return give_info(hStream, {captureStatus_out, id_out});
}
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return give_info(hStream, {captureStatus_out, id_out, graph_out, dependencies_out, nullptr,
                             numDependencies_out});
}
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  return give_info(hStream, {captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                             numDependencies_out});
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData,
                                              size_t numDependencies, unsigned int flags) {
  return with_stream(hStream, [&](Stream& stream) {
    const std::lock_guard lock(driver().graphs.mutex);
    if (!stream.capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<Link> links;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES ||
        !find_nodes(*stream.capture->graph, dependencies, dependencyData, numDependencies, links)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream.capture_links.clear();
    stream.capture_links.insert(stream.capture_links.end(), links.begin(), links.end());
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, numDependencies,
                                              flags);
}
