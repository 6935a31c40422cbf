#pragma once
#include <atomic>
#include <vector>

#include "intercept/driver/driver.hpp"
#include "intercept/pacing/durations.hpp"

namespace sluice::intercept {

class Client;

extern constinit std::atomic<int> g_open_captures;

/// Saves the driver query while the process captures nothing.
inline bool any_capture_open() noexcept {
  return g_open_captures.load(std::memory_order_relaxed) != 0;
}

/// Whether work given to the stream now is recorded instead of run.
bool is_capturing(CUstream stream) noexcept;

/// After a successful begin. `into_graph`: the capture adds to a graph that existed before, for
/// instance the body of a conditional node, where we may add nothing.
void capture_begun(CUstream stream, bool into_graph) noexcept;

/// What is known of the stream's capture before it is ended.
struct Ending {
  CUstreamCaptureStatus status;
  cuuint64_t id;
};
Ending capture_ending(CUstream stream) noexcept;

/// After the call; `graph` is what it returned, null if nothing.
void capture_ended(const Ending& ending, CUstream stream, CUgraph graph) noexcept;

/// A launch is about to be recorded. Under `device` puts a wait node in front where the spacing
/// asks for one. The spacing depends only on what is captured, so that two captures of the same
/// code have the same nodes and cuGraphExecUpdate goes on working. No wait goes in front of a
/// programmatic dependent launch: it would cut the edge that the launch is about. And none into
/// the graphs of a client whom nobody may hold: they would slow the critical job itself.
void record_launch(Client& client, Entry entry, CUstream stream, const Work& work) noexcept;

/// The captures that end with a stream, or a context (null: perhaps any), that is about to be
/// destroyed. Asked for before it is: at once its handle may be that of another one.
using CaptureIds = std::vector<cuuint64_t>;
[[nodiscard]] CaptureIds captures_of(CUstream stream) noexcept;
[[nodiscard]] CaptureIds captures_of(CUcontext context) noexcept;
/// It has been: nobody can end them any more.
void captures_abandoned(const CaptureIds& ids) noexcept;

/// For a graph that could not be instantiated: takes our wait nodes out of it and its children.
/// False if it holds none.
bool take_waits_out(CUgraph graph) noexcept;

/// `exec` was made of `graph`.
void graph_instantiated(CUgraphExec exec, CUgraph graph) noexcept;

/// Says, once, that a graph runs without our waits: it is preemptible only in front.
void report_ungated_graph() noexcept;

void graph_destroyed(CUgraph graph) noexcept;

}  // namespace sluice::intercept
