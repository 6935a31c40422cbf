#pragma once
#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "intercept/client/interposer.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/pacing/captures.hpp"
#include "intercept/pacing/graphs.hpp"

/// The hooks of captures and graphs, for exports.cpp only. The rules of exports.hpp hold here too.
namespace sluice::intercept {

// --- Capture ------------------------------------------------------------------------------------

/// No query may be under way when a capture begins: a query of the capturing stream or of the
/// legacy stream would break the capture.
template <class Call>
CUresult begin_capture(CUstream stream, Call call) {
  const NoCancel whole;
  const QueryBan quiet = QueryBan::about_stream(stream);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) capture_begun(stream);
  g_process.forget_remembered();
  return result;
}

template <class Call>
CUresult end_capture(CUstream stream, const CUgraph* graph, Call call) {
  const NoCancel whole;
  const CUresult result = call();
  capture_ended(stream);
  g_process.forget_remembered();  // launches meanwhile were not remembered as such
  Interposer* const self = Interposer::existing();
  const bool made = result == CUDA_SUCCESS && graph != nullptr && *graph != nullptr;
  if (made && self != nullptr && !in_forked_child()) self->graphs().captured(*graph);
  return result;
}

template <Entry entry, class Real, class... Args>
CUresult hook(Of<Kind::kCapture>, Real real, CUstream stream, Args... args) {
  return begin_capture(named<entry>(stream), [&] { return (*real)(stream, args...); });
}
template <Entry entry, class Real>
CUresult hook(Of<Kind::kCapture>, Real real, CUstream stream, CUgraph* graph) {
  return end_capture(named<entry>(stream), graph, [&] { return (*real)(stream, graph); });
}

/// The stream may join a capture. A query that has found that it does not capture would break the
/// capture. The call may wait for the GPU.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kCapture>, Real real, CUstream stream, CUevent event, unsigned flags) {
  if (!any_capture_open() || in_forked_child()) return (*real)(stream, event, flags);
  CancellableBan quiet = CancellableBan::about_stream(named<entry>(stream));
  const CUresult result = (*real)(stream, event, flags);
  quiet.lift();
  return result;
}

// --- Graph: instantiation -----------------------------------------------------------------------

inline GpuSize gpu_size(CUdevice device) noexcept {
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

inline bool wants_waits_in_graphs(Client& client) noexcept {
  return client.policy().waits_on_device() && client.wants_waits_in_graphs();
}

/// For the current context.
inline std::optional<GraphPacing> pacing_of(Client& client) noexcept {
  if (!wants_waits_in_graphs(client)) return std::nullopt;
  const std::optional<GateMemory::Addresses> words = client.memory().for_graphs();
  if (words) {
    return GraphPacing{&client.pacer().durations(),
                       client.policy(),
                       {current_context(), words->gate, words->slack},
                       gpu_size(client.device()),
                       client.time_scale()};
  }
  // Otherwise the device cannot wait, and another policy is in force now.
  if (wants_waits_in_graphs(client)) report_ungated_graph();
  return std::nullopt;
}

/// See FindPacing.
inline std::optional<GraphPacing> pacing_in(CUcontext context) noexcept {
  const CUdevice current = current_device();
  const CUdevice device = context == nullptr ? current : device_of(context);
  const bool elsewhere = device != current && device >= 0;
  Client* const client = Interposer::instance().clients().of(elsewhere ? device : current);
  if (client == nullptr) return std::nullopt;
  if (!elsewhere) return pacing_of(*client);
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return std::nullopt;
  const std::optional<GraphPacing> pacing = pacing_of(*client);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
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
  Interposer* self = nullptr;
  bool wanted = false;
  if (!in_forked_child()) {
    if_memory_lasts([&] {
      self = &Interposer::instance();
      (void)self->client_here(true);
      self->clients().for_each(
          [&wanted](Client& each) { wanted = wanted || wants_waits_in_graphs(each); });
    });
  }
  if (!wanted) {
    const CUresult result = call();
    if (result == CUDA_SUCCESS && exec != nullptr && self != nullptr) self->graphs().forget(*exec);
    return result;
  }
  GraphBook::Instantiation instantiation(self->graphs(), graph, &pacing_in);
  CUresult result = call();
  instantiation.take_waits_out();
  const bool refused = result != CUDA_SUCCESS && instantiation.has_waits();
  if (refused) {
    outputs.restore();
    result = call();
  }
  if (result == CUDA_SUCCESS && exec != nullptr) instantiation.instantiated(*exec, refused);
  return result;
}

inline void keep_outputs(Outputs& outputs, CUgraphNode* error_node, char* log, std::size_t size) {
  outputs.keep(error_node, sizeof(CUgraphNode));
  outputs.keep(log, size);
}
inline void keep_outputs(Outputs& outputs, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  outputs.keep(params, sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
}
inline void keep_outputs(Outputs&, unsigned long long) {}

template <Entry entry, class Real, class... Args>
CUresult hook(Of<Kind::kGraph>, Real real, CUgraphExec* exec, CUgraph graph, Args... args) {
  Outputs outputs;
  keep_outputs(outputs, args...);
  return instantiate(exec, graph, outputs, [&] { return (*real)(exec, graph, args...); });
}

// --- Graph: update and end ----------------------------------------------------------------------

/// The book of the executables; null if there can be none with waits.
inline GraphBook* graph_book() noexcept {
  Interposer* const self = Interposer::existing();
  return self == nullptr || in_forked_child() ? nullptr : &self->graphs();
}

/// What an update reports about our nodes becomes what it says about the program's.
inline void translate(const GraphBook::Update& update, CUgraphNode* error_node,
                      CUgraphExecUpdateResult*) {
  if (error_node != nullptr) *error_node = update.program_node(*error_node);
}
inline void translate(const GraphBook::Update& update, CUgraphExecUpdateResultInfo* info) {
  if (info == nullptr) return;
  info->errorNode = update.program_node(info->errorNode);
  info->errorFromNode = update.program_node(info->errorFromNode);
}

template <Entry entry, class Real, class... Outs>
CUresult hook(Of<Kind::kGraph>, Real real, CUgraphExec exec, CUgraph graph, Outs... outs) {
  GraphBook* const book = graph_book();
  if (book == nullptr) return (*real)(exec, graph, outs...);
  const NoCancel whole;
  const GraphBook::Update update(*book, exec, graph);
  const CUresult result = (*real)(exec, graph, outs...);
  translate(update, outs...);
  return result;
}

/// `call` sets the given child graph anew. Without our waits it fails where the executable has
/// them.
template <class Call>
CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child, Call call) {
  GraphBook* const book = graph_book();
  if (book == nullptr) return call(child);
  const NoCancel whole;
  for (std::size_t earlier = 0; earlier <= GraphBook::ChildCopy::kMostEarlier; ++earlier) {
    const GraphBook::ChildCopy copy(*book, exec, node, child, earlier);
    if (copy.graph() == nullptr) break;
    const CUresult result = call(copy.graph());
    if (result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) return result;
  }
  return call(child);
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kGraph>, Real real, CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return set_child(exec, node, child, [&](CUgraph graph) { return (*real)(exec, node, graph); });
}
template <Entry entry, class Real>
CUresult hook(Of<Kind::kGraph>, Real real, CUgraphExec exec, CUgraphNode node,
              CUgraphNodeParams* params) {
  const bool child = params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH;
  if (!child) return (*real)(exec, node, params);
  return set_child(exec, node, params->graph.graph, [&](CUgraph graph) {
    CUgraphNodeParams copy = *params;
    copy.graph.graph = graph;
    return (*real)(exec, node, &copy);
  });
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kGraph>, Real real, CUgraphExec exec) {
  GraphBook* const book = graph_book();
  if (book == nullptr) return (*real)(exec);
  const NoCancel whole;
  std::optional<GraphBook::Executable> known = book->take(exec);
  const CUresult result = (*real)(exec);
  if (known) result == CUDA_SUCCESS ? book->ended(*known) : book->put_back(exec, *std::move(known));
  return result;
}

}  // namespace sluice::intercept
