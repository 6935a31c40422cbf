#include "intercept/capture.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "intercept/client.hpp"
#include "intercept/log.hpp"
#include "intercept/process.hpp"

namespace sluice::intercept {

constinit std::atomic<int> g_open_captures{0};

namespace {

struct Capture {
  bool into_graph = false;
  /// By handle: while it captures, a stream cannot be destroyed for its handle to be used again,
  /// and asking the driver for its id would invalidate the capture (seen on driver 580).
  std::unordered_map<CUstream, std::uint64_t> launches;
  std::vector<CUgraphNode> waits;
};

struct Captures {
  std::mutex mutex;
  std::unordered_map<cuuint64_t, Capture> open;                    ///< By capture id.
  std::unordered_map<CUgraph, std::vector<CUgraphNode>> waits_of;  ///< Of captured graphs.
};

/// Never destroyed: graphs may be destroyed by the program's own exit handlers.
Captures& captures() noexcept {
  static Captures& instance = *std::make_unique<Captures>().release();
  return instance;
}

struct Info {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUgraphNode* dependencies = nullptr;
  std::size_t dependency_count = 0;
};

Info info_of(CUstream stream) noexcept {
  Info info;
  if (driver().cuStreamGetCaptureInfo_v2 == nullptr) return info;  // older than CUDA 11.3
  CUgraph graph = nullptr;
  driver().cuStreamGetCaptureInfo_v2(stream, &info.status, &info.id, &graph, &info.dependencies,
                                     &info.dependency_count);
  return info;
}

std::vector<CUgraphNode> neighbours(decltype(Driver::cuGraphNodeGetDependencies) get,
                                    CUgraphNode node) {
  std::size_t count = 0;
  if (get(node, nullptr, &count) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> nodes(count);
  if (count != 0 && get(node, nodes.data(), &count) != CUDA_SUCCESS) nodes.clear();
  return nodes;
}

/// Takes a node out of a graph and ties what was before it to what was behind it.
void bypass_node(CUgraph graph, CUgraphNode node) {
  const auto before = neighbours(driver().cuGraphNodeGetDependencies, node);
  const auto behind = neighbours(driver().cuGraphNodeGetDependentNodes, node);
  driver().cuGraphDestroyNode(node);
  for (const CUgraphNode from : before) {
    for (const CUgraphNode to : behind) driver().cuGraphAddDependencies(graph, &from, &to, 1);
  }
}

}  // namespace

bool is_capturing(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void capture_begun(CUstream stream, bool into_graph) noexcept {
  const Info info = info_of(stream);
  if (info.status == CU_STREAM_CAPTURE_STATUS_NONE) return;
  g_open_captures.fetch_add(1);
  const std::lock_guard lock(captures().mutex);
  captures().open[info.id].into_graph = into_graph;
}

Ending capture_ending(CUstream stream) noexcept {
  const Info info = info_of(stream);
  return {info.status, info.id};
}

void capture_ended(const Ending& ending, CUstream stream, CUgraph graph) noexcept {
  // An end on the wrong stream or thread leaves the capture open.
  if (ending.status == CU_STREAM_CAPTURE_STATUS_NONE || is_capturing(stream)) return;
  g_open_captures.fetch_sub(1);
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().open.find(ending.id);
  if (found == captures().open.end()) return;
  if (graph != nullptr && !found->second.waits.empty()) {
    captures().waits_of[graph] = std::move(found->second.waits);
  }
  captures().open.erase(found);
}

void record_launch(Client& client, Entry entry, CUstream stream, bool programmatic) noexcept {
  const Info info = info_of(stream);
  const std::lock_guard lock(captures().mutex);
  Capture& capture = captures().open[info.id];
  if (capture.into_graph) {
    client.counter(entry, shm::Count::kBypassForeignCapture).fetch_add(1);
    return;
  }
  client.counter(entry, shm::Count::kCaptured).fetch_add(1);
  const shm::Policy policy = client.policy();
  if (policy.kind != shm::PolicyKind::kDevice || !client.may_be_held()) return;
  std::uint64_t& launches = capture.launches[stream];
  if (launches != 0 && (launches < policy.n || programmatic)) {
    ++launches;
    return;
  }
  launches = 1;
  if (programmatic || !client.pacer().put_wait(stream)) return;
  client.counter(entry, shm::Count::kWaited).fetch_add(1);
  const Info after = info_of(stream);
  if (after.dependency_count == 1) capture.waits.push_back(after.dependencies[0]);
}

CUgraph clone_without_waits(CUgraph graph) noexcept {
  if (in_forked_child()) return nullptr;
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().waits_of.find(graph);
  if (found == captures().waits_of.end()) return nullptr;
  CUgraph clone = nullptr;
  if (driver().cuGraphClone(&clone, graph) != CUDA_SUCCESS) return nullptr;
  for (const CUgraphNode wait : found->second) {
    CUgraphNode node = nullptr;
    if (driver().cuGraphNodeFindInClone(&node, wait, clone) == CUDA_SUCCESS) {
      bypass_node(clone, node);
    }
  }
  return clone;
}

void report_bare_graph() noexcept {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  Line(Level::kWarn) << "a captured graph could not hold device waits; it runs without them, so a "
                     << "critical job waits for it to end";
}

void graph_destroyed(CUgraph graph) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard lock(captures().mutex);
  captures().waits_of.erase(graph);
}

}  // namespace sluice::intercept
