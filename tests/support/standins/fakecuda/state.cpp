#include "state.hpp"

#include <unistd.h>

#include <algorithm>

namespace fake {

State& state() {
  static State& instance = *std::make_unique<State>().release();  // outlives exit handlers
  return instance;
}

Thread& this_thread() {
  static thread_local Thread thread;
  return thread;
}

CUcontext State::primary_of(CUdevice device) {
  CUcontext& context = primary[device];
  if (context != nullptr) return context;
  // One that begins again has its old handle.
  const auto ended = std::find_if(contexts.begin(), contexts.end(), [device](const auto& made) {
    return made->primary && made->device == device;
  });
  auto& made =
      ended == contexts.end() ? contexts.emplace_back(std::make_unique<CUctx_st>()) : *ended;
  *made = CUctx_st{device, true, true, 0, next_context_id++};
  context = made.get();
  return context;
}

/// What streams have freed and come to.
void State::give_back_freed() {
  std::erase_if(freed, [this](const PoolPiece& piece) {
    if (piece.stream->done < piece.mark) return false;
    if (pools_keep) kept[piece.pool] += piece.bytes;
    return true;
  });
}

std::uint64_t State::reserved_by(CUmemoryPool pool) {
  give_back_freed();
  std::uint64_t sum = kept[pool];
  for (const auto& [at, piece] : pooled) sum += piece.pool == pool ? piece.bytes : 0;
  for (const PoolPiece& piece : freed) sum += piece.pool == pool ? piece.bytes : 0;
  return sum;
}

/// The pool gives memory that it keeps, or that the same stream has freed, before it takes more.
void State::take_from(CUmemoryPool pool, CUstream stream, std::uint64_t bytes) {
  give_back_freed();
  CUstream_st* const of = find_stream(stream);
  const auto same = std::find_if(freed.begin(), freed.end(), [&](const PoolPiece& piece) {
    return piece.pool == pool && piece.stream == of && piece.bytes == bytes;
  });
  if (same != freed.end()) {
    freed.erase(same);
  } else if (kept[pool] >= bytes) {
    kept[pool] -= bytes;
  }
}

CUcontext State::current() {
  const Thread& thread = this_thread();
  return thread.contexts.empty() ? primary_of(0) : thread.contexts.back();
}

CUstream_st* State::find_stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return &legacy;
  if (handle == CU_STREAM_PER_THREAD) {
    CUstream_st*& stream = this_thread().streams[current()];
    if (stream == nullptr) {
      stream = per_thread.emplace_back(std::make_unique<CUstream_st>()).get();
      stream->id = next_stream_id++;
      stream->context = current();
    }
    return stream;
  }
  const bool known = std::any_of(streams.begin(), streams.end(),
                                 [&](const auto& stream) { return stream.get() == handle; });
  return known && handle->alive ? handle : nullptr;
}

CUstream_st& State::stream_of(CUstream handle) {
  CUstream_st* found = find_stream(handle);
  return found == nullptr ? legacy : *found;  // tests of routing pass invented handles
}

bool State::is_exec(CUgraphExec exec) const {
  return std::any_of(execs.begin(), execs.end(),
                     [exec](const auto& one) { return one.get() == exec; });
}

bool State::is_event(CUevent event) {
  const bool exists = events.count(event) != 0;
  if (!exists) ++uses_of_dead_events;
  return exists;
}

CUdeviceptr State::take_memory() {
  constexpr CUdeviceptr kStep = 0x100'0000;
  CUdeviceptr found = kStep;
  while (memory.contains(found)) found += kStep;
  memory.insert(found);
  return found;
}

bool State::is_registered(CUdeviceptr address) {
  const auto behind = registered.upper_bound(reinterpret_cast<const void*>(address));
  constexpr CUdeviceptr kMost = 1U << 20U;
  return behind != registered.begin() &&
         address - reinterpret_cast<CUdeviceptr>(std::prev(behind)->first) < kMost;
}

bool State::is_done(const CUstream_st& stream) {
  if (stream.done != stream.submitted) return false;
  return &stream != &legacy ||
         std::all_of(per_thread.begin(), per_thread.end(),
                     [](const auto& one) { return one->done == one->submitted; });
}

bool State::unsafe_call() {
  const CUstreamCaptureMode mode = this_thread().mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  bool broke = false;
  for (const auto& weak : captures) {
    const auto capture = weak.lock();
    if (capture == nullptr || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool global =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !global) continue;
    capture->broken = true;
    broke = true;
  }
  return broke;
}

CUgraphNode State::add_node(CUgraph graph, char kind, std::vector<CUgraphNode> dependencies) {
  graph->nodes.push_back(
      std::make_unique<CUgraphNode_st>(CUgraphNode_st{kind, graph, std::move(dependencies)}));
  graph->nodes.back()->number = graph->next_number++;
  return graph->nodes.back().get();
}

CUresult State::submit(CUstream handle, char kind, const CUDA_KERNEL_NODE_PARAMS& kernel) {
  CUstream_st& stream = stream_of(handle);
  if (stream.capture != nullptr) {
    if (stream.capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream.tail = {add_node(stream.capture->graph, kind, stream.tail)};
    stream.tail.front()->kernel = kernel;
    return CUDA_SUCCESS;
  }
  ++stream.submitted;
  if (!paused) stream.done = stream.submitted;
  return CUDA_SUCCESS;
}

CUresult State::submit_wait(CUstream handle, CUdeviceptr address, cuuint64_t value,
                            unsigned flags) {
  const CUresult result = submit(handle, 'W');
  const CUstream_st& stream = stream_of(handle);
  if (result == CUDA_SUCCESS && stream.capture != nullptr) {
    auto& wait = stream.tail.front()->operations.emplace_back().waitValue;
    wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    wait.address = address;
    wait.value64 = value;
    wait.flags = flags;
  }
  return result;
}

CUgraph State::clone(CUgraph graph, std::map<CUgraphNode, CUgraphNode>* clones) {
  graphs.push_back(std::make_unique<CUgraph_st>());
  const CUgraph copy = graphs.back().get();
  std::map<CUgraphNode, CUgraphNode> copies;
  for (const auto& node : graph->nodes) {
    const CUgraphNode added = add_node(copy, node->kind, {});
    added->operations = node->operations;
    added->number = node->number;
    added->kernel = node->kernel;
    if (node->child != nullptr) added->child = clone(node->child, clones);
    copies[node.get()] = added;
  }
  for (const auto& [node, added] : copies) {
    for (const CUgraphNode before : node->dependencies) {
      added->dependencies.push_back(copies[before]);
      if (node->programmatic.contains(before)) added->programmatic.insert(copies[before]);
    }
  }
  copy->next_number = graph->next_number;
  if (clones != nullptr) clones->merge(copies);
  return copy;
}

/// What the driver compares, in the way it documents: nodes are paired by their edges, from those
/// at the end on, and the edges of a node in their order.
CUresult State::update(CUgraph from, CUgraph to) {
  constexpr CUresult kDiffer = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  if (from->nodes.size() != to->nodes.size()) return kDiffer;
  const auto ends = [](CUgraph graph) {
    std::set<CUgraphNode> inner;
    for (const auto& node : graph->nodes) {
      inner.insert(node->dependencies.begin(), node->dependencies.end());
    }
    std::vector<CUgraphNode> found;
    for (const auto& node : graph->nodes) {
      if (!inner.contains(node.get())) found.push_back(node.get());
    }
    return found;
  };
  const std::vector<CUgraphNode> old_ends = ends(from);
  const std::vector<CUgraphNode> new_ends = ends(to);
  if (old_ends.size() != new_ends.size()) return kDiffer;
  std::map<CUgraphNode, CUgraphNode> pairs;
  std::vector<std::pair<CUgraphNode, CUgraphNode>> open;
  for (std::size_t i = 0; i < old_ends.size(); ++i) open.emplace_back(old_ends[i], new_ends[i]);
  while (!open.empty()) {
    const auto [before, after] = open.back();
    open.pop_back();
    const auto [pair, fresh] = pairs.emplace(before, after);
    if (!fresh && pair->second != after) return kDiffer;
    if (!fresh) continue;
    if (before->kind != after->kind || before->operations.size() != after->operations.size() ||
        before->dependencies.size() != after->dependencies.size()) {
      return kDiffer;
    }
    for (std::size_t i = 0; i < before->dependencies.size(); ++i) {
      open.emplace_back(before->dependencies[i], after->dependencies[i]);
    }
    if (before->child != nullptr && update(before->child, after->child) != CUDA_SUCCESS) {
      return kDiffer;
    }
  }
  return CUDA_SUCCESS;
}

namespace {

bool holds_waits(CUgraph graph) {
  return std::any_of(graph->nodes.begin(), graph->nodes.end(), [](const auto& node) {
    return node->kind == 'W' || (node->child != nullptr && holds_waits(node->child));
  });
}

bool bodies_hold_waits(CUgraph graph) {
  return std::any_of(graph->nodes.begin(), graph->nodes.end(), [](const auto& node) {
    return node->kind == 'I' && holds_waits(node->child);
  });
}

}  // namespace

CUresult State::instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  const bool known = std::any_of(graphs.begin(), graphs.end(),
                                 [graph](const auto& one) { return one.get() == graph; });
  if (!known) return CUDA_SUCCESS;  // tests of routing pass invented handles
  if (bodies_hold_waits(graph)) return CUDA_ERROR_INVALID_VALUE;
  const bool waits = holds_waits(graph);
  if (waits && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  execs.push_back(std::make_unique<CUgraphExec_st>());
  execs.back()->graph = clone(graph, &execs.back()->clones);
  *exec = execs.back().get();
  return CUDA_SUCCESS;
}

void State::wait(std::unique_lock<std::mutex>& lock, const CUstream_st& stream,
                 std::uint64_t until) {
  changed.wait(lock, [&] { return stream.done >= until; });
}

template <class Holds>
void State::stand(std::unique_lock<std::mutex>& lock, Holds holds) {
  if (!holds()) return;
  // A thread may be cancelled here, as in a driver; a condition variable of C++ cannot.
  struct Standing {
    explicit Standing(std::atomic<int>& threads) : all(threads) { ++all; }
    ~Standing() { --all; }
    std::atomic<int>& all;
  };
  const Standing standing(stalled_threads);
  while (holds()) {
    lock.unlock();
    usleep(100);
    lock.lock();
  }
}

void State::stand_at(std::unique_lock<std::mutex>& lock, const Call& call) {
  const auto is_named = [&call](std::uint64_t stream) {
    const auto end = call.arguments.begin() + call.argument_count;
    return std::find(call.arguments.begin(), end, stream) != end;
  };
  stand(lock, [&] { return stalled == call.id || std::ranges::any_of(stalled_streams, is_named); });
}

void State::stand_at_return(std::unique_lock<std::mutex>& lock, Id id) {
  stand(lock, [&] { return stalled_return == id; });
}

std::vector<Call> calls() {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

std::size_t count(Id id) {
  const std::lock_guard lock(state().mutex);
  return static_cast<std::size_t>(std::count_if(state().calls.begin(), state().calls.end(),
                                                [&](const Call& call) { return call.id == id; }));
}

void clear() {
  const std::lock_guard lock(state().mutex);
  state().calls.clear();
}

void stall(Id id) {
  const std::lock_guard lock(state().mutex);
  state().stalled = id;
}
void stall_return(Id id) {
  const std::lock_guard lock(state().mutex);
  state().stalled_return = id;
}
void stall_stream(CUstream stream) {
  const std::lock_guard lock(state().mutex);
  state().stalled_streams.push_back(reinterpret_cast<std::uint64_t>(stream));
}
void unstall() {
  const std::lock_guard lock(state().mutex);
  state().stalled_streams.clear();
  state().stalled.reset();
  state().stalled_return.reset();
}
int stalled_threads() {
  const std::lock_guard lock(state().mutex);
  return state().stalled_threads;
}

void answer(Id id, CUresult result) {
  const std::lock_guard lock(state().mutex);
  if (result == CUDA_SUCCESS) {
    state().answers.erase(id);
  } else {
    state().answers[id] = result;
  }
}

void fail_after(Id id, int good) {
  const std::lock_guard lock(state().mutex);
  state().answers[id] = CUDA_ERROR_UNKNOWN;
  state().good_calls[id] = good;
}

void set_stream_waits(bool supported) {
  const std::lock_guard lock(state().mutex);
  state().stream_waits = supported;
}

void set_elapsed(float ms) {
  const std::lock_guard lock(state().mutex);
  state().elapsed_ms = ms;
  state().elapsed_of.clear();
}

void set_elapsed_of(CUfunction function, float ms) {
  const std::lock_guard lock(state().mutex);
  state().elapsed_ms = ms;
  state().elapsed_of[function] = ms;
}

void pause() {
  const std::lock_guard lock(state().mutex);
  state().paused = true;
}

void resume() {
  {
    const std::lock_guard lock(state().mutex);
    state().paused = false;
  }
  finish_all();
}

void finish(CUstream stream, std::uint64_t operations) {
  const std::lock_guard lock(state().mutex);
  CUstream_st& found = state().stream_of(stream);
  found.done = std::min(found.submitted, found.done + operations);
  state().changed.notify_all();
}

void finish_all() {
  const std::lock_guard lock(state().mutex);
  state().legacy.done = state().legacy.submitted;
  for (const auto& [context, stream] : this_thread().streams) stream->done = stream->submitted;
  for (const auto& stream : state().streams) stream->done = stream->submitted;
  state().changed.notify_all();
}

void keep_in_pools(bool keep) {
  const std::lock_guard lock(state().mutex);
  state().pools_keep = keep;
}

std::uint64_t reserved(CUdevice device) {
  const std::lock_guard lock(state().mutex);
  return state().reserved_by(default_pool(device));
}

std::uint64_t outstanding(CUstream stream) {
  const std::lock_guard lock(state().mutex);
  const CUstream_st& found = state().stream_of(stream);
  return found.submitted - found.done;
}

std::string nodes(CUgraph graph) {
  std::string kinds;
  for (const auto& node : graph->nodes) kinds += node->kind;
  return kinds;
}

std::string run_order(CUgraphExec exec) { return run_order(exec->graph); }

std::string run_order(CUgraph graph) {
  std::string kinds;
  std::set<CUgraphNode> done;
  while (done.size() != graph->nodes.size()) {
    const auto next = std::find_if(graph->nodes.begin(), graph->nodes.end(), [&](const auto& node) {
      return !done.contains(node.get()) &&
             std::all_of(node->dependencies.begin(), node->dependencies.end(),
                         [&](CUgraphNode before) { return done.contains(before); });
    });
    if (next == graph->nodes.end()) return kinds + " and a cycle";
    done.insert(next->get());
    kinds += (*next)->kind;
    if ((*next)->child != nullptr) kinds += '(' + run_order((*next)->child) + ')';
  }
  return kinds;
}

std::vector<std::uint64_t> gates(CUgraphExec exec) {
  std::vector<std::uint64_t> found;
  for (const auto& node : exec->graph->nodes) {
    if (node->kind == 'W') continue;
    const bool waits = node->dependencies.size() == 1 && node->dependencies[0]->kind == 'W';
    found.push_back(waits ? node->dependencies[0]->operations.back().waitValue.address : 0);
  }
  return found;
}

std::vector<std::uint64_t> slack_waits(CUgraphExec exec) {
  std::vector<std::uint64_t> found;
  for (const auto& node : exec->graph->nodes) {
    for (const CUstreamBatchMemOpParams& operation : node->operations) {
      if (operation.waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ) {
        found.push_back(operation.waitValue.value64);
      }
    }
  }
  return found;
}

std::vector<std::pair<CUgraphNode, CUgraphNode>> edges(CUgraph graph) {
  std::vector<std::pair<CUgraphNode, CUgraphNode>> found;
  for (const auto& node : graph->nodes) {
    for (const CUgraphNode before : node->dependencies) found.emplace_back(before, node.get());
  }
  return found;
}

bool is_chain(CUgraph graph) {
  CUgraphNode before = nullptr;
  for (const auto& node : graph->nodes) {
    const std::vector<CUgraphNode> expected =
        before == nullptr ? std::vector<CUgraphNode>{} : std::vector<CUgraphNode>{before};
    if (node->dependencies != expected) return false;
    before = node.get();
  }
  return true;
}

std::size_t living_events() {
  const std::lock_guard lock(state().mutex);
  return state().events.size();
}

std::size_t uses_of_dead_events() {
  const std::lock_guard lock(state().mutex);
  return state().uses_of_dead_events;
}

bool registered() {
  const std::lock_guard lock(state().mutex);
  return !state().registered.empty();
}

}  // namespace fake
