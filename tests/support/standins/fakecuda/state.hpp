#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fakecuda.hpp"

struct CUctx_st {
  CUdevice device = 0;
  bool primary = false;
  bool alive = true;
  int retained = 0;
  std::uint64_t id = 0;  ///< Of no other context, though it may have the handle.
};

struct CUgraphNode_st {
  char kind = 'K';
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> dependencies;
  CUgraph child = nullptr;                             ///< The graph inside the graph.
  std::vector<CUstreamBatchMemOpParams> operations{};  ///< For a wait.
  CUDA_KERNEL_NODE_PARAMS kernel{};                    ///< For a kernel.
  std::set<CUgraphNode> programmatic{};                ///< Dependencies by a programmatic edge.
  std::uint64_t number = 0;  ///< In its graph; that of a destroyed node is not used again.
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::uint64_t next_number = 0;
};

struct CUgraphExec_st {
  CUgraph graph = nullptr;  ///< A clone.
  /// Of each node of the graph that it was made of, the one of the clone. Also of nodes inside.
  std::map<CUgraphNode, CUgraphNode> clones;
};

namespace fake {

struct Capture {
  cuuint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool broken = false;
  bool owns_graph = true;
  CUgraph graph = nullptr;
  CUstream origin = nullptr;
};

}  // namespace fake

struct CUstream_st {
  std::uint64_t id = 0;
  CUcontext context = nullptr;
  bool alive = true;
  std::uint64_t submitted = 0;
  std::uint64_t done = 0;
  std::shared_ptr<fake::Capture> capture;
  std::vector<CUgraphNode> tail;  ///< What the next captured node depends on.
  CUfunction function = nullptr;  ///< Of the last kernel.
};

struct CUevent_st {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  std::uint64_t mark = 0;
  std::shared_ptr<fake::Capture> capture;  ///< The capture that recorded it.
  std::vector<CUgraphNode> tail;
  std::optional<float> ms;  ///< The time of the kernel in front of it; nothing: that of any.
};

namespace fake {

/// All state, behind one lock. Handles live until the process ends, so that a test with a stale
/// handle reads memory that exists. The handle of a destroyed stream is given out again at once.
struct State {
  /// Memory of a pool.
  struct PoolPiece {
    std::uint64_t bytes = 0;
    CUmemoryPool pool = nullptr;
    CUcontext context = nullptr;
    CUstream stream = nullptr;  ///< That frees it, behind so many operations.
    std::uint64_t mark = 0;
  };
  std::mutex mutex;
  std::condition_variable changed;

  std::vector<Call> calls;
  std::map<Id, CUresult> answers;
  std::map<Id, int> good_calls;  ///< Before an answer counts.
  std::optional<Id> stalled;
  std::optional<Id> stalled_return;
  std::vector<std::uint64_t> stalled_streams;
  std::atomic<int> stalled_threads{0};

  bool paused = false;
  bool stream_waits = true;
  float elapsed_ms = 0;
  std::map<CUfunction, float> elapsed_of;
  std::multiset<CUdeviceptr> memory;           ///< Addresses, and references by handles.
  std::map<CUdeviceptr, PoolPiece> pooled;     ///< Allocated by streams.
  std::vector<PoolPiece> freed;                ///< By streams that have not come there yet.
  std::map<CUmemoryPool, std::uint64_t> kept;  ///< Not in use, and not given back.
  bool pools_keep = false;
  std::uintptr_t next_pool = 0x9100;
  std::map<const void*, CUcontext> registered;  ///< By the first byte of the mapping.

  std::uint64_t next_stream_id = 1;
  std::uint64_t next_context_id = 1;
  cuuint64_t next_capture_id = 1;
  CUstream_st legacy;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::map<CUdevice, CUcontext> primary;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::vector<std::unique_ptr<CUstream_st>> per_thread;  ///< Events may outlive their threads.
  std::vector<CUstream> free_streams;
  std::set<CUevent> events;
  std::size_t uses_of_dead_events = 0;
  std::vector<std::unique_ptr<CUevent_st>> event_memory;
  std::vector<std::unique_ptr<CUgraph_st>> graphs;
  std::vector<std::unique_ptr<CUgraphExec_st>> execs;
  std::vector<std::unique_ptr<CUgraphNode_st>> destroyed_nodes;
  std::vector<std::weak_ptr<Capture>> captures;

  /// The lowest address or handle that is free, as a driver reuses them. Memory has no size here.
  CUdeviceptr take_memory();
  CUcontext primary_of(CUdevice device);
  void give_back_freed();
  std::uint64_t reserved_by(CUmemoryPool pool);
  void take_from(CUmemoryPool pool, CUstream stream, std::uint64_t bytes);
  CUcontext current();
  CUstream_st& stream_of(CUstream handle);
  CUstream_st* find_stream(CUstream handle);
  [[nodiscard]] bool is_exec(CUgraphExec exec) const;  ///< Tests of routing invent handles.
  /// Whether the event exists. Counts the uses of events that no longer exist.
  bool is_event(CUevent event);

  /// Whether the address lies in a registered mapping.
  bool is_registered(CUdeviceptr address);
  /// The legacy stream is done only when default streams of threads are (seen on driver 580).
  bool is_done(const CUstream_st& stream);

  /// Whether an unsafe call of this thread breaks a capture. Breaks it.
  bool unsafe_call();

  /// Gives the stream an operation, which is done at once, done later, or captured.
  CUresult submit(CUstream handle, char kind, const CUDA_KERNEL_NODE_PARAMS& kernel = {});
  CUresult submit_wait(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned flags);
  /// `clones` gets the clone of each node, if not null.
  CUgraph clone(CUgraph graph, std::map<CUgraphNode, CUgraphNode>* clones = nullptr);
  CUgraphNode add_node(CUgraph graph, char kind, std::vector<CUgraphNode> dependencies);
  CUresult instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags);
  CUresult update(CUgraph from, CUgraph to);
  void wait(std::unique_lock<std::mutex>& lock, const CUstream_st& stream) {
    wait(lock, stream, stream.submitted);
  }
  void wait(std::unique_lock<std::mutex>& lock, const CUstream_st& stream, std::uint64_t until);
  void stand_at(std::unique_lock<std::mutex>& lock, const Call& call);
  void stand_at_return(std::unique_lock<std::mutex>& lock, Id id);

 private:
  template <class Holds>
  void stand(std::unique_lock<std::mutex>& lock, Holds holds);
};

State& state();

struct Thread {
  std::vector<CUcontext> contexts;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::map<CUcontext, CUstream_st*> streams;  ///< Its per-thread default stream of each context.
};
Thread& this_thread();

}  // namespace fake
