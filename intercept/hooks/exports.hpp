#pragma once
// What the hook of each kind does, for exports.cpp only. Argument types come from the entry's
// declaration in cuda.h. Captures and graphs are in exports_graph.hpp.
//
// A thread may be cancelled inside a driver call of the program that waits for GPU work. So no
// function here is noexcept around such a call, and no object with a destructor lives across it
// (see ThreadMarks). A call that does not wait for GPU work runs with cancellation disabled
// (NoCancel).
#include <tuple>
#include <type_traits>
#include <utility>

#include "intercept/client/interposer.hpp"
#include "intercept/driver/contexts.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/hooks/launch.hpp"
#include "intercept/hooks/lookup.hpp"
#include "intercept/jobs/wait_file.hpp"
#include "intercept/pacing/captures.hpp"

namespace sluice::intercept {

/// Null unless this process has a client.
inline Interposer* with_clients() noexcept {
  Interposer* const self = Interposer::existing();
  const bool has = self != nullptr && self->clients().count() != 0 && !in_forked_child();
  return has ? self : nullptr;
}

// --- Launch -------------------------------------------------------------------------------------

inline CUstream stream_in(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream stream, ...) {
  return stream;
}
inline CUstream stream_in(const CUlaunchConfig* config, CUfunction, void**, void**) {
  return config == nullptr ? nullptr : config->hStream;
}
inline CUstream stream_in(CUgraphExec, CUstream stream) { return stream; }
// cuLaunch and cuLaunchGrid have no stream: they launch into the default stream.
inline CUstream stream_in(CUfunction) { return nullptr; }
inline CUstream stream_in(CUfunction, int, int) { return nullptr; }
inline CUstream stream_in(CUfunction, int, int, CUstream stream) { return stream; }
inline CUgraphExec graph_in(CUgraphExec graph, CUstream) { return graph; }

inline Work work_in(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                    unsigned bz, unsigned shared, CUstream, ...) {
  return {f, nullptr, {gx, gy, gz}, {bx, by, bz}, shared};
}
inline Work work_in(const CUlaunchConfig* config, CUfunction f, void**, void**) {
  return work_of(config, f);
}
// The block was set before, by cuFuncSetBlockShape.
inline Work work_in(CUfunction f) { return {f, nullptr, {1, 1, 1}}; }
inline Work work_in(CUfunction f, int width, int height) {
  return {f, nullptr, {static_cast<unsigned>(width), static_cast<unsigned>(height), 1}};
}
inline Work work_in(CUfunction f, int width, int height, CUstream) {
  return work_in(f, width, height);
}
inline Work work_in(const CUDA_LAUNCH_PARAMS& kernel) {
  return {kernel.function,
          nullptr,
          {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
          {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ},
          kernel.sharedMemBytes};
}
inline Work work_in(CUgraphExec graph, CUstream) noexcept {
  Work work;
  work.graph = graph;
  Interposer* const self = with_clients();
  if (self != nullptr) work.of_graph = self->graphs().duration_of(graph);
  return work;
}

template <Entry entry, auto member, class... Args>
__attribute__((noinline)) CUresult launch_slowly(Args... args) {
  const shm::Count counted = std::exchange(t_streams.counted, shm::Count::kSize);
  const Work work = work_in(args...);
  driver();  // fills g_process.driver, which the next call uses
  Launch launch(entry, named<entry>(stream_in(args...)), work, counted);
  if (launch.refused()) return Launch::refusal(t_streams.caller);
  const CUresult result = (g_process.driver.*member)(args...);
  launch.done(result);
  return result;
}

/// The call of a kernel launch is a tail call, so the arguments stay in their registers and on the
/// stack. A graph can be a whole job, and its launch can take the driver so long that the job ends
/// before the work begins.
template <Entry entry, auto member, class... Args>
CUresult hook(Of<Kind::kLaunch>, Args... args) {
  constexpr bool kGraph = std::is_same_v<std::tuple_element_t<0, std::tuple<Args...>>, CUgraphExec>;
  const CUstream stream = named<entry>(stream_in(args...));
  const std::uint64_t version = kGraph ? g_process.version.load() : 0;
  if constexpr (kGraph) {
    g_process.last_graph.store(graph_in(args...), std::memory_order_relaxed);
  }
  if (pass(entry, stream)) [[likely]] {
    if constexpr (!kGraph) return (g_process.driver.*member)(args...);
    const CUresult result = (g_process.driver.*member)(args...);
    if (g_process.version.load(std::memory_order_relaxed) != version) work_given(stream);
    return result;
  }
  t_streams.caller = __builtin_return_address(0);
  return launch_slowly<entry, member>(args...);
}

/// cuLaunchCooperativeKernelMultiDevice: each kernel heeds the gate of its own device, and the call
/// is made when all of them may run.
template <Entry entry, auto member>
CUresult launch_rest(CUDA_LAUNCH_PARAMS* kernels, unsigned count, unsigned flags, unsigned next) {
  if (next >= count) return (g_process.driver.*member)(kernels, count, flags);
  const Work work = work_in(kernels[next]);
  Launch launch(entry, named<entry>(kernels[next].hStream), work, shm::Count::kSize);
  if (launch.refused()) return Launch::refusal(t_streams.caller);
  const CUresult result = launch_rest<entry, member>(kernels, count, flags, next + 1);
  launch.done(result);
  return result;
}
template <Entry entry, auto member>
CUresult hook(Of<Kind::kLaunch>, CUDA_LAUNCH_PARAMS* kernels, unsigned count, unsigned flags) {
  driver();
  t_streams.caller = __builtin_return_address(0);
  // The driver refuses more kernels than there are devices.
  const bool readable = kernels != nullptr && count <= kMostDevices;
  return launch_rest<entry, member>(kernels, count, flags, readable ? 0 : count);
}

// --- CopyIn -------------------------------------------------------------------------------------

template <Entry entry, class Real>
CUresult hook(Of<Kind::kCopyIn>, Real real, CUdeviceptr to, const void* from, std::size_t size) {
  copy_begins(named<entry>(nullptr), true);
  return (*real)(to, from, size);
}
template <Entry entry, class Real>
CUresult hook(Of<Kind::kCopyIn>, Real real, CUdeviceptr to, const void* from, std::size_t size,
              CUstream stream) {
  copy_begins(named<entry>(stream), false);
  return (*real)(to, from, size, stream);
}

// --- Sync ---------------------------------------------------------------------------------------

/// Makes a call that waits for the GPU, and counts its time where a measurement asked for that.
/// `kSurely`: the call waits, and does not only wait at times.
template <bool kSurely, class Call>
CUresult counting_wait(Call call) {
  WaitFile* const file = g_process.wait_file.load(std::memory_order_acquire);
  if (file == nullptr || in_forked_child()) return call();
  const Waits::Wait wait = file->begins(base::monotonic_ns());
  const CUresult result = call();
  file->returned(wait, base::monotonic_ns(), kSurely);
  return result;
}

template <class Call>
CUresult synchronise_context(CUcontext context, Call call) {
  Interposer* const self = with_clients();
  if (self == nullptr) return call();
  if (context == nullptr) context = current_context();
  Client* const client = self->client_of(context);
  if (client == nullptr) return call();
  Jobs::Synchronising synchronising(client->jobs());
  const std::uint64_t waits_since_ns = client->orders().begin_wait();
  const std::uint64_t launches = client->may_be_held() ? client->launches() : 0;
  const CUresult result = call();
  client->orders().end_wait(waits_since_ns);
  if (result == CUDA_SUCCESS && launches != 0 && client->launches() == launches) {
    client->pacer().all_has_run(context);
  }
  synchronising.returned(result, context);
  return result;
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kSync>, Real real) {
  return counting_wait<true>(
      [&] { return synchronise_context(nullptr, [&] { return (*real)(); }); });
}
template <Entry entry, class Real>
CUresult hook(Of<Kind::kSync>, Real real, CUcontext context) {
  return counting_wait<true>(
      [&] { return synchronise_context(context, [&] { return (*real)(context); }); });
}
template <Entry entry, class Real>
CUresult synchronise_stream(Real real, CUstream stream) {
  Interposer* const self = with_clients();
  if (self == nullptr) return (*real)(stream);
  Stream* known = nullptr;
  if_memory_lasts([&] { known = stream_of(named<entry>(stream), false); });
  Client* const client = known != nullptr ? known->client : self->client_here(false);
  if (client == nullptr) return (*real)(stream);
  Jobs::Synchronising synchronising(client->jobs());
  const std::uint64_t waits_since_ns = client->orders().begin_wait();
  const Pacer::Spent spent = known == nullptr ? Pacer::Spent{} : known->pacer->spent(*known);
  const CUresult result = (*real)(stream);
  client->orders().end_wait(waits_since_ns);
  if (result == CUDA_SUCCESS && known != nullptr) known->pacer->has_run(*known, spent);
  synchronising.returned(result, known);
  return result;
}
template <Entry entry, class Real>
CUresult hook(Of<Kind::kSync>, Real real, CUstream stream) {
  return counting_wait<true>([&] { return synchronise_stream<entry>(real, stream); });
}

// --- Wait ---------------------------------------------------------------------------------------

/// Whether a call waits for work, and does not only ask about it. A copy to pageable memory of the
/// host waits, whatever its name says.
template <Entry entry>
inline constexpr bool kWaits =
    !kEntryNames[static_cast<std::size_t>(entry)].starts_with("cuEventQuery") &&
    !kEntryNames[static_cast<std::size_t>(entry)].starts_with("cuStreamQuery");
/// Whether a call that returns leaves nothing of what it was called for undone.
template <Entry entry>
inline constexpr bool kEnds =
    kEntryNames[static_cast<std::size_t>(entry)].find("Async") == std::string_view::npos;

/// When the work was given that a call waits for, as EventMarks counts; 0: nobody knows.
template <class... Args>
std::uint64_t given_before(Args...) noexcept {
  return g_process.event_marks.period();
}
inline std::uint64_t given_before(CUevent event) noexcept {
  return g_process.event_marks.take(event);
}

template <Entry entry, class Real, class... Args>
CUresult wait_in_call(Real real, Args... args) {
  Interposer* const self = Interposer::existing();
  const bool attached = self != nullptr && self->clients().count() != 0;
  Client* const client = attached ? self->client_that_waits() : nullptr;
  const auto job_open = [] { return g_process.open_jobs.load(std::memory_order_relaxed) != 0; };
  const bool counts = client != nullptr && client->jobs().waits_matter();
  if ((!counts && !job_open()) || with_clients() == nullptr) {
    const CUresult result = (*real)(args...);
    if (kEnds<entry> && client != nullptr && result == CUDA_SUCCESS)
      client->jobs().unheld_wait_returned();
    return result;
  }
  Jobs::Wait wait;
  if (counts) wait = client->jobs().wait_begins(kEnds<entry>);
  if (wait.since_ns != 0) wait.given = given_before(args...);
  const CUresult result = (*real)(args...);
  if (wait.since_ns != 0) client->jobs().wait_returned(wait, result, kEnds<entry>);
  if (kEnds<entry> && counts && result == CUDA_SUCCESS) client->jobs().unheld_wait_returned();
  if (kEnds<entry> && result == CUDA_SUCCESS && job_open()) self->work_may_be_done();
  return result;
}

/// Another thread looks whether this was the last work of a job: a query in the program's own
/// thread could block behind work that only this thread lets run.
template <Entry entry, class Real, class... Args>
CUresult hook(Of<Kind::kWait>, Real real, Args... args) {
  if constexpr (kWaits<entry>) {
    return counting_wait<kEnds<entry>>([&] { return wait_in_call<entry>(real, args...); });
  }
  if (g_process.open_jobs.load(std::memory_order_relaxed) == 0) return (*real)(args...);
  const CUresult result = (*real)(args...);
  // A query that finds nothing done gets no further: this makes a system call.
  if (result != CUDA_SUCCESS) return result;
  Interposer* const self = Interposer::existing();
  if (self == nullptr || self->all_ends_are_hinted()) return result;
  if (with_clients() != nullptr) self->work_may_be_done();
  return result;
}

// --- Record -------------------------------------------------------------------------------------

/// The wait for an event ends the step in which it was recorded.
template <Entry entry, class Real, class... Rest>
CUresult hook(Of<Kind::kRecord>, Real real, CUevent event, Rest... rest) {
  if (g_process.open_jobs.load(std::memory_order_relaxed) != 0) g_process.event_marks.note(event);
  return (*real)(event, rest...);
}

// --- The current context ------------------------------------------------------------------------

/// The context that the thread has set last, if we saw the call. Some programs set the same context
/// before each launch.
inline constinit thread_local CUcontext t_context = nullptr;

inline void context_is(CUcontext context) noexcept {
  if (context != nullptr && context == t_context) return;
  t_context = context;
  t_streams.forget_default_streams();
}

// --- What ends ----------------------------------------------------------------------------------

/// Null unless records may have to end.
inline Interposer* with_records() noexcept {
  return in_forked_child() ? nullptr : Interposer::existing();
}

/// The records of streams that a call may end. They are taken out before the call, because after
/// it the driver may have given the handles to others. A call that ends nothing leaves all as it
/// was, so they are put back then: the work in the streams still runs.
class EndingStreams {
 public:
  /// `which`: a Stream::Key, or a ContextId.
  template <class Which>
  explicit EndingStreams(const Which& which) noexcept {
    const NoCancel whole;
    if (self_ != nullptr) taken_ = self_->streams().take_out(which);
  }
  /// After the call. `gone`: the events of the streams have ended too.
  void returned(bool ended, bool gone) noexcept {
    const NoCancel whole;
    if (taken_ == nullptr) return;
    ended ? self_->end_streams(taken_, gone) : self_->put_streams_back(taken_);
  }

 private:
  Interposer* self_ = with_records();
  Stream* taken_ = nullptr;
};

/// For a context that has ended. The caller holds a QueryBan.
inline void forget_context(const ContextId& context) noexcept {
  EarlySwitch::forget_context(context);
  if (Interposer* const self = with_records()) self->context_ended(context);
}

/// Brackets a call that may end a context (a null handle: unknown which one).
class EndingContext {
 public:
  explicit EndingContext(const ContextId& context) noexcept
      : context_(context), captures_(captures_of(context)), streams_(context) {}
  void returned(bool ended) noexcept {
    const NoCancel whole;
    streams_.returned(ended, true);
    if (!ended) return;
    captures_abandoned(captures_);
    forget_context(context_);
  }

 private:
  ContextId context_;
  EndingCaptures captures_;
  EndingStreams streams_;
};

/// For a call that ends the context if it succeeds.
template <class Call>
CUresult end_context(const ContextId& context, Call call) {
  CancellableBan quiet = CancellableBan::about_context(context.handle);
  EndingContext ending(context);
  const CUresult result = call();
  ending.returned(result == CUDA_SUCCESS);
  quiet.lift();
  // The thread may have been in this one, and the next may have its handle.
  if (result == CUDA_SUCCESS) context_is(nullptr);
  return result;
}

/// The last release of a primary context ends it. Earlier releases are common while work runs, and
/// must not drop what we keep.
template <class Call>
CUresult let_go_of_primary(CUdevice device, Call call) {
  if (in_forked_child()) return call();
  const ContextId context = primary_id(device);
  if (context.handle == nullptr && !primary_is_active(device)) return call();
  CancellableBan quiet = CancellableBan::about_context(context.handle);
  EndingContext ending(context);
  const CUresult result = call();
  ending.returned(result == CUDA_SUCCESS && primary_has_ended(device, context));
  quiet.lift();
  return result;
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kEndContext>, Real real, CUcontext context) {
  if (in_forked_child()) return (*real)(context);
  return end_context(identify(context), [&] { return (*real)(context); });
}
template <Entry entry, class Real>
CUresult hook(Of<Kind::kReleasePrimary>, Real real, CUdevice device) {
  return let_go_of_primary(device, [&] { return (*real)(device); });
}
/// A reset ends nothing in a program that uses only contexts of its own.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kResetPrimary>, Real real, CUdevice device) {
  if (in_forked_child()) return (*real)(device);
  const ContextId context = primary_id(device);
  if (context.handle == nullptr && !primary_is_active(device)) return (*real)(device);
  return end_context(context, [&] { return (*real)(device); });
}

/// Null if the driver cannot say.
inline CUcontext context_of(CUgreenCtx green) noexcept {
  CUcontext context = nullptr;
  const bool known = driver().cuCtxFromGreenCtx != nullptr &&
                     driver().cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS;
  return known ? context : nullptr;
}

/// A green context retains the primary context, so its end may be the last release.
template <Entry entry, class Real>
CUresult hook(Of<Kind::kEndContext>, Real real, CUgreenCtx green) {
  if (in_forked_child()) return (*real)(green);
  const CUcontext context = context_of(green);
  const CUdevice device = device_of(context);
  return end_context(identify(context),
                     [&] { return let_go_of_primary(device, [&] { return (*real)(green); }); });
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kEndStream>, Real real, CUstream stream) {
  if (is_default_stream(stream) || in_forked_child()) return (*real)(stream);
  CancellableBan quiet = CancellableBan::about_stream(stream);
  EndingStreams ending(Streams::key_of(stream, nullptr));
  const EndingCaptures captures = captures_of(stream);
  const CUresult result = (*real)(stream);
  if (result == CUDA_SUCCESS) captures_abandoned(captures);
  ending.returned(result == CUDA_SUCCESS, false);
  quiet.lift();
  return result;
}

/// The addresses of the unloaded kernels may be given to other kernels, for which the learned
/// durations would be wrong. What is learned of them during the call is in doubt too.
template <Entry entry, class Real, class Code>
CUresult hook(Of<Kind::kUnload>, Real real, Code code) {
  const CUresult result = (*real)(code);
  if (result == CUDA_SUCCESS) g_process.code_epoch.fetch_add(1);
  return result;
}

// --- Contexts that begin, and become current ----------------------------------------------------

/// The entries that make a context name its device last.
inline CUdevice made_on(CUcontext) noexcept { return -1; }
inline CUdevice made_on(CUcontext*) noexcept { return -1; }
template <class... Args>
CUdevice made_on(CUcontext*, Args... args) noexcept {
  return std::get<sizeof...(args) - 1>(std::tuple(args...));
}

template <Entry entry, class Real, class... Args>
CUresult hook(Of<Kind::kCurrent>, Real real, Args... args) {
  const CUdevice device = made_on(args...);
  if (device >= 0) ChannelGroups::begins_context(device);
  const CUresult result = (*real)(args...);
  if (device >= 0) g_process.channel_groups.ends_context(device);
  if constexpr (entry == Entry::cuCtxSetCurrent) {
    if (result == CUDA_SUCCESS) context_is(args...);
  } else {
    context_is(nullptr);
  }
  return result;
}

template <Entry entry, class Real>
CUresult hook(Of<Kind::kRetain>, Real real, CUcontext* context, CUdevice device) {
  const NoCancel whole;
  PrimaryRetain reference(device);
  RetainPrimary retain(device);
  ChannelGroups::begins_context(device);
  const CUresult result = (*real)(context, device);
  g_process.channel_groups.ends_context(device);
  const CUcontext retained = result == CUDA_SUCCESS && context != nullptr ? *context : nullptr;
  if (retained != nullptr && !in_forked_child()) {
    reference.returned(retained, [](const ContextId& ended) {
      const QueryBan quiet = QueryBan::about_context(ended.handle);
      forget_context(ended);
    });
  }
  // The interposer is made here, after the driver has registered its exit handlers, so that our
  // handler runs before the driver's.
  bool wanted = false;
  if (retained != nullptr) {
    if_memory_lasts([&] { wanted = Interposer::instance().config().priority != 0; });
  }
  retain.returned(retained, wanted);
  return result;
}

// The real lookup runs first, and its answer is replaced by address. So version and per-thread flag
// are right without guessing, and a lookup of the lookup itself needs no special case.

template <Entry entry, class Real, class... Rest>
CUresult hook(Of<Kind::kLookup>, Real real, const char* symbol, void** found, Rest... rest) {
  const CUresult result = (*real)(symbol, found, rest...);
  if (result == CUDA_SUCCESS && found != nullptr && *found != nullptr && symbol != nullptr) {
    *found = substitute(symbol, *found);
  }
  return result;
}

}  // namespace sluice::intercept
