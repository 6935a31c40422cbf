// The exported functions of captures and graphs. The rules of exports.cpp hold here too.
#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "intercept/client/interposer.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/hook.hpp"
#include "intercept/pacing/captures.hpp"
#include "intercept/pacing/graphs.hpp"

using namespace sluice::intercept;

namespace {

/// Never destroyed: the program's exit handlers may still instantiate and update graphs.
GraphBook& graph_book() noexcept {
  static GraphBook& book = *std::make_unique<GraphBook>().release();
  return book;
}

/// No query may be under way when a capture begins: a query of the capturing stream or of the
/// legacy stream would break the capture.
template <class Call>
CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode, Call call) {
  const NoCancel whole;
  const QueryBan quiet = QueryBan::about_stream(stream);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) capture_begun(stream, mode);
  g_process.forget_remembered();
  return result;
}

template <class Call>
CUresult end_capture(CUstream stream, const CUgraph* graph, Call call) {
  const NoCancel whole;
  const Ending ending = capture_ending(stream);
  const CUresult result = call();
  capture_ended(ending, stream);
  g_process.forget_remembered();  // launches meanwhile were not remembered as such
  if (result == CUDA_SUCCESS && graph != nullptr && *graph != nullptr && !in_forked_child()) {
    graph_book().captured(*graph);
  }
  return result;
}

GpuSize gpu_size(CUdevice device) noexcept {
  const auto attribute = [device](CUdevice_attribute which, unsigned otherwise) {
    int value = 0;
    const bool told = driver().cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS;
    return told && value > 0 ? static_cast<unsigned>(value) : otherwise;
  };
  const GpuSize usual;
  return {attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, usual.multiprocessors),
          attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, usual.threads),
          attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, usual.shared_bytes)};
}

GraphPacing pacing_of(Client& client) noexcept {
  GraphPacing pacing{
      client.pacer().durations(), client.policy(), std::nullopt, {}, client.time_scale()};
  const auto wanted = [&] {
    return client.policy().kind == sluice::shm::PolicyKind::kDevice &&
           client.wants_waits_in_graphs();
  };
  if (!wanted()) return pacing;
  if (const std::optional<GateMemory::Addresses> words = client.memory().for_graphs()) {
    const CUcontext context = current_context();
    pacing.words = {context, words->gate, words->slack};
  } else if (wanted()) {  // otherwise the device cannot wait, and another policy is in force now
    report_ungated_graph();
  }
  pacing.gpu = gpu_size(client.device());
  return pacing;
}

/// Keeps the program's output memory of a call, and restores it before the call is made a second
/// time. A failed first call writes there, and a successful second one may not.
class Outputs {
 public:
  void keep(void* at, std::size_t size) noexcept {
    if (at == nullptr || size == 0) return;
    try {
      const char* const bytes = static_cast<const char*>(at);
      kept_.push_back({static_cast<char*>(at), {bytes, bytes + size}});
    } catch (const std::bad_alloc&) {
      // Then the error message of the first call may stay.
    }
  }
  void restore() const noexcept {
    for (const Kept& kept : kept_) std::copy(kept.bytes.begin(), kept.bytes.end(), kept.at);
  }

 private:
  struct Kept {
    char* at;
    std::vector<char> bytes;
  };
  std::vector<Kept> kept_;
};

/// Instantiates a graph with our waits. If the driver refuses (for example a graph for launches by
/// the device), makes the call again without waits; the program gets the result, the error node and
/// the log of that second call.
template <class Call>
CUresult instantiate(const CUgraphExec* exec, CUgraph graph, const Outputs& outputs, Call call) {
  const NoCancel whole;
  Client* client = nullptr;
  if (!in_forked_child()) {
    if_memory_lasts([&] { client = Interposer::instance().client_here(true); });
  }
  if (client == nullptr) return call();
  const GraphPacing pacing = pacing_of(*client);
  GraphBook::Instantiation instantiation(graph_book(), graph, pacing);
  CUresult result = call();
  instantiation.take_waits_out();
  const bool refused = result != CUDA_SUCCESS && instantiation.has_waits();
  if (refused) {
    outputs.restore();
    result = call();
  }
  if (result != CUDA_SUCCESS || exec == nullptr) return result;
  const bool preemptible = instantiation.instantiated(*exec, refused);
  Interposer::instance().clients().for_each(
      [&](Client& each) { each.pacer().durations().renew(*exec, preemptible && &each == client); });
  return result;
}

}  // namespace

// --- Capture ------------------------------------------------------------------------------------

#define SLUICE_BEGIN_CAPTURE_V1(name, named)                           \
  SLUICE_EXPORT CUresult name(CUstream stream) {                       \
    return begin_capture(named(stream), CU_STREAM_CAPTURE_MODE_GLOBAL, \
                         [&] { return driver().name(stream); });       \
  }
SLUICE_BEGIN_CAPTURE_V1(cuStreamBeginCapture, plain)
SLUICE_BEGIN_CAPTURE_V1(cuStreamBeginCapture_ptsz, per_thread)

#define SLUICE_BEGIN_CAPTURE(name, named)                                                   \
  SLUICE_EXPORT CUresult name(CUstream stream, CUstreamCaptureMode mode) {                  \
    return begin_capture(named(stream), mode, [&] { return driver().name(stream, mode); }); \
  }
SLUICE_BEGIN_CAPTURE(cuStreamBeginCapture_v2, plain)
SLUICE_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, per_thread)

#define SLUICE_BEGIN_CAPTURE_TO_GRAPH(name, named)                                             \
  SLUICE_EXPORT CUresult name(CUstream stream, CUgraph graph, const CUgraphNode* dependencies, \
                              const CUgraphEdgeData* edges, size_t count,                      \
                              CUstreamCaptureMode mode) {                                      \
    return begin_capture(named(stream), mode, [&] {                                            \
      return driver().name(stream, graph, dependencies, edges, count, mode);                   \
    });                                                                                        \
  }
SLUICE_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph, plain)
SLUICE_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz, per_thread)

#define SLUICE_END_CAPTURE(name, named)                                                     \
  SLUICE_EXPORT CUresult name(CUstream stream, CUgraph* graph) {                            \
    return end_capture(named(stream), graph, [&] { return driver().name(stream, graph); }); \
  }
SLUICE_END_CAPTURE(cuStreamEndCapture, plain)
SLUICE_END_CAPTURE(cuStreamEndCapture_ptsz, per_thread)

// --- Graph --------------------------------------------------------------------------------------

#define SLUICE_INSTANTIATE_LOG(name)                                                           \
  SLUICE_EXPORT CUresult name(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node,       \
                              char* log, size_t log_size) {                                    \
    Outputs outputs;                                                                           \
    outputs.keep(error_node, sizeof(CUgraphNode));                                             \
    outputs.keep(log, log_size);                                                               \
    return instantiate(exec, graph, outputs,                                                   \
                       [&] { return driver().name(exec, graph, error_node, log, log_size); }); \
  }
SLUICE_INSTANTIATE_LOG(cuGraphInstantiate)
SLUICE_INSTANTIATE_LOG(cuGraphInstantiate_v2)

SLUICE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                   unsigned long long flags) {
  return instantiate(exec, graph, {},
                     [&] { return driver().cuGraphInstantiateWithFlags(exec, graph, flags); });
}

#define SLUICE_INSTANTIATE_PARAMS(name)                                                           \
  SLUICE_EXPORT CUresult name(CUgraphExec* exec, CUgraph graph,                                   \
                              CUDA_GRAPH_INSTANTIATE_PARAMS* params) {                            \
    Outputs outputs;                                                                              \
    outputs.keep(params, sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));                                  \
    return instantiate(exec, graph, outputs, [&] { return driver().name(exec, graph, params); }); \
  }
SLUICE_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams)
SLUICE_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams_ptsz)

SLUICE_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                         CUgraphExecUpdateResult* why) {
  if (in_forked_child()) return driver().cuGraphExecUpdate(exec, graph, error_node, why);
  const NoCancel whole;
  const GraphBook::Update update(graph_book(), exec, graph);
  const CUresult result = driver().cuGraphExecUpdate(exec, graph, error_node, why);
  if (error_node != nullptr) *error_node = update.program_node(*error_node);
  return result;
}
SLUICE_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                            CUgraphExecUpdateResultInfo* info) {
  if (in_forked_child()) return driver().cuGraphExecUpdate_v2(exec, graph, info);
  const NoCancel whole;
  const GraphBook::Update update(graph_book(), exec, graph);
  const CUresult result = driver().cuGraphExecUpdate_v2(exec, graph, info);
  if (info != nullptr) {
    info->errorNode = update.program_node(info->errorNode);
    info->errorFromNode = update.program_node(info->errorFromNode);
  }
  return result;
}

/// `call` sets the given child graph anew. Without our waits it fails where the executable has
/// them.
template <class Call>
static CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child, Call call) {
  const NoCancel whole;
  for (std::size_t earlier = 0; earlier <= GraphBook::ChildCopy::kMostEarlier; ++earlier) {
    const GraphBook::ChildCopy copy(graph_book(), exec, node, child, earlier);
    if (copy.graph() == nullptr) break;
    const CUresult result = call(copy.graph());
    if (result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) return result;
  }
  return call(child);
}

SLUICE_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                          CUgraph child) {
  const auto call = [&](CUgraph graph) {
    return driver().cuGraphExecChildGraphNodeSetParams(exec, node, graph);
  };
  return in_forked_child() ? call(child) : set_child(exec, node, child, call);
}
SLUICE_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                CUgraphNodeParams* params) {
  const bool child = params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH;
  if (!child || in_forked_child()) {
    return driver().cuGraphExecNodeSetParams(exec, node, params);
  }
  return set_child(exec, node, params->graph.graph, [&](CUgraph graph) {
    CUgraphNodeParams copy = *params;
    copy.graph.graph = graph;
    return driver().cuGraphExecNodeSetParams(exec, node, &copy);
  });
}

SLUICE_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  const auto call = [&] { return driver().cuGraphExecDestroy(exec); };
  if (in_forked_child()) return call();
  std::optional<GraphBook::Executable> known = graph_book().take(exec);
  const CUresult result = call();
  if (result != CUDA_SUCCESS && known) graph_book().put_back(exec, *std::move(known));
  return result;
}
