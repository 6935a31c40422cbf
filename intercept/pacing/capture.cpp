#include "intercept/pacing/capture.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "intercept/client/client.hpp"
#include "intercept/client/interposer.hpp"
#include "intercept/client/log.hpp"
#include "intercept/pacing/wait_nodes.hpp"

namespace sluice::intercept {

constinit std::atomic<int> g_open_captures{0};

namespace {

/// What a captured stream has been given since its last wait.
struct Run {
  std::uint64_t launches = 0;
  std::uint64_t ns = 0;
};

struct Capture {
  bool into_graph = false;
  CUstream origin = nullptr;  ///< Where it was begun, and must be ended.
  CUcontext context = nullptr;
  /// By handle: while it captures, a stream cannot be destroyed for its handle to be used again,
  /// and asking the driver for its id would invalidate the capture (seen on driver 580).
  std::unordered_map<CUstream, Run> runs;
  std::uint64_t run_ns = 0;  ///< Of all streams together.
  bool has_waits = false;
};

struct Captures {
  std::mutex mutex;
  std::unordered_map<cuuint64_t, Capture> open;  ///< By capture id.
  std::unordered_set<CUgraph> with_waits;        ///< Captured graphs.
};

/// Never destroyed: graphs may be destroyed by the program's own exit handlers.
Captures& captures() noexcept {
  static Captures& instance = *std::make_unique<Captures>().release();
  return instance;
}

struct Info {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
};

Info info_of(CUstream stream) noexcept {
  Info info;
  if (driver().cuStreamGetCaptureInfo_v2 == nullptr) return info;  // older than CUDA 11.3
  driver().cuStreamGetCaptureInfo_v2(stream, &info.status, &info.id, nullptr, nullptr, nullptr);
  return info;
}

/// Whether what the stream captures next may stand behind a wait: between two kernels that overlap
/// by a programmatic edge (from an event in the first, say) nothing else may stand, and the driver
/// does not list such edges in this form.
bool may_wait(CUstream stream, const Work& work) noexcept {
  CUstreamCaptureStatus status{};
  const CUgraphNode* tails = nullptr;
  std::size_t count = 0;
  return !work.programmatic && driver().cuStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr,
                                                                  &tails, &count) == CUDA_SUCCESS;
}

/// What goes in front of the launch, which is counted. Depends on nothing but what is captured:
/// lengths are those of the first capture that asked.
struct Waits {
  bool for_gate = false;
  std::uint32_t for_slack_ns = 0;  ///< 0: none.
};

Waits waits_before(Capture& capture, Client& client, const shm::Policy& policy, CUstream stream,
                   const Work& work) noexcept {
  Run& run = capture.runs[stream];
  Waits waits;
  std::uint64_t ns = 0;
  bool due = run.launches == 0;
  if (policy.spacing.is_time()) {
    LaunchDuration* const length = client.pacer().durations().find(work);
    const LaunchDuration::Frozen frozen =
        length == nullptr
            ? LaunchDuration::Frozen{LaunchDuration::kUnbounded, LaunchDuration::kUnbounded}
            : length->frozen();
    ns = frozen.ns;
    due = due || capture.run_ns + ns > policy.spacing.ns();
    // What was unknown once would be held by every notice for as long as the graph lives.
    const bool waits_inside = work.graph != nullptr && length != nullptr && length->preemptible();
    const bool long_one = !waits_inside && frozen.longest_ns > policy.spacing.ns();
    if (long_one && frozen.longest_ns != LaunchDuration::kUnbounded)
      waits.for_slack_ns = frozen.longest_ns;
  } else {
    due = due || run.launches >= policy.spacing.count;
  }
  waits.for_gate = due;
  if (!may_wait(stream, work)) waits = {};
  if (waits.for_gate) {
    capture.run_ns -= run.ns;
    run = {};
  }
  ++run.launches;
  run.ns += ns;
  capture.run_ns += ns;
  return waits;
}

template <class Which>
CaptureIds open_where(Which which) noexcept {
  CaptureIds ids;
  if (!any_capture_open() || in_forked_child()) return ids;
  const std::lock_guard lock(captures().mutex);
  for (const auto& [id, capture] : captures().open) {
    if (which(capture)) ids.push_back(id);
  }
  return ids;
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
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  g_open_captures.fetch_add(1);
  const std::lock_guard lock(captures().mutex);
  Capture& capture = captures().open[info.id];
  capture.into_graph = into_graph;
  capture.origin = stream;
  capture.context = context;
}

CaptureIds captures_of(CUstream stream) noexcept {
  return open_where([stream](const Capture& capture) { return capture.origin == stream; });
}

CaptureIds captures_of(CUcontext context) noexcept {
  return open_where([context](const Capture& capture) {
    return context == nullptr || capture.context == context;
  });
}

void captures_abandoned(const CaptureIds& ids) noexcept {
  if (ids.empty()) return;
  const std::lock_guard lock(captures().mutex);
  for (const cuuint64_t id : ids) {
    g_open_captures.fetch_sub(static_cast<int>(captures().open.erase(id)));
  }
}

Ending capture_ending(CUstream stream) noexcept {
  const Info info = info_of(stream);
  return {info.status, info.id};
}

void capture_ended(const Ending& ending, CUstream stream, CUgraph graph) noexcept {
  // An end on the wrong stream or thread leaves the capture open.
  if (ending.status == CU_STREAM_CAPTURE_STATUS_NONE || is_capturing(stream)) return;
  const std::lock_guard lock(captures().mutex);
  auto& open = captures().open;
  auto found = open.find(ending.id);
  if (found == open.end()) {  // the driver tells no id of a capture that is broken
    found = std::find_if(open.begin(), open.end(),
                         [stream](const auto& entry) { return entry.second.origin == stream; });
  }
  if (found == open.end()) return;
  g_open_captures.fetch_sub(1);
  if (graph != nullptr && found->second.has_waits) captures().with_waits.insert(graph);
  open.erase(found);
}

void record_launch(Client& client, Entry entry, CUstream stream, const Work& work) noexcept {
  const Info info = info_of(stream);
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().open.find(info.id);
  client.counter(entry, shm::Count::kCaptured).fetch_add(1);
  if (found == captures().open.end() || found->second.into_graph) return;
  Capture& capture = found->second;
  const shm::Policy policy = client.policy();
  if (policy.kind != shm::PolicyKind::kDevice || !client.captures_waits()) return;
  const Waits waits = waits_before(capture, client, policy, stream, work);
  // As in a stream: the gate is read last.
  if (waits.for_slack_ns != 0 && client.pacer().put_slack_node(stream, waits.for_slack_ns)) {
    capture.has_waits = true;
  }
  if (!waits.for_gate || !client.pacer().put_node(stream)) return;
  capture.has_waits = true;
  client.counter(entry, shm::Count::kWaited).fetch_add(1);
}

bool take_waits_out(CUgraph graph) noexcept {
  if (in_forked_child()) return false;
  if (!take_wait_nodes_out(graph)) return false;
  const std::lock_guard lock(captures().mutex);
  captures().with_waits.erase(graph);
  return true;
}

void graph_instantiated(CUgraphExec exec, CUgraph graph) noexcept {
  if (in_forked_child()) return;
  bool has_waits = false;
  {
    const std::lock_guard lock(captures().mutex);
    has_waits = captures().with_waits.contains(graph);
  }
  Interposer::instance().for_each_client(
      [exec, has_waits](Client& client) { client.pacer().durations().renew(exec, has_waits); });
}

void report_ungated_graph() noexcept {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  Line(Level::kWarn) << "a captured graph could not hold device waits; it runs without them, so a "
                     << "critical job waits for it to end";
}

void graph_destroyed(CUgraph graph) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard lock(captures().mutex);
  captures().with_waits.erase(graph);
}

}  // namespace sluice::intercept
