#pragma once
#include "intercept/client/interposer.hpp"
#include "intercept/pacing/capture.hpp"
#include "intercept/pacing/durations.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

/// The client of a launch. One load for a process that uses one device.
inline Client* client_of(CUstream stream) noexcept {
  Client* only = g_only_client.load(std::memory_order_acquire);
  return only != nullptr ? only : Interposer::instance().client_of(stream);
}

/// What cuLaunchKernelEx is asked for.
Work work_of(const CUlaunchConfig* config, CUfunction function) noexcept;

/// Everything that happens around a call that gives the GPU work. `stream` is named: never 0 for
/// a per-thread entry. `describe` gives the Work, and is only asked where it matters. Runs in the
/// caller's thread; return codes, argument lifetimes and order stay the program's own.
template <class Describe, class Call>
CUresult launch(Entry entry, CUstream stream, Describe describe, Call call) noexcept {
  Client* client = client_of(stream);
  if (client == nullptr) [[unlikely]] {
    Interposer::instance().count_unattached(entry);
    return call();
  }
  if (any_capture_open() && is_capturing(stream)) [[unlikely]] {
    record_launch(*client, entry, stream, describe());
    return call();
  }
  client->count_launch(entry);
  client->jobs().touch(stream);
  Pacer::Turn turn;
  if (client->must_pace()) [[unlikely]] {
    turn = client->pacer().before(entry, stream, describe());
  }
  // Last, because the gate may have closed while an event group was waited for.
  if (client->gate_closed()) [[unlikely]] {
    client->hold(entry);
    // Its policy has become device: what holds it then stands in its stream.
    if (client->policy().kind == shm::PolicyKind::kDevice && client->must_pace() &&
        turn.policy.kind != shm::PolicyKind::kDevice) {
      turn = client->pacer().before(entry, stream, describe(), true);
    }
  }
  Trace* const traced = trace();
  if (traced != nullptr) [[unlikely]] {
    traced->before_launch();
  }
  const CUresult result = call();
  if (traced != nullptr) [[unlikely]] {
    traced->after_launch(entry, stream, describe().function, result);
  }
  if (turn.state != nullptr) client->pacer().after(turn, stream, result);
  // Again: while this launch was held, another thread's synchronise may have ended the job.
  client->jobs().touch(stream);
  if (stream == CU_STREAM_PER_THREAD) client->jobs().mark_per_thread();
  return result;
}

/// A copy to the device: the earliest sign of a transparent job.
template <class Call>
CUresult copy_in(CUstream stream, bool synchronous, Call call) noexcept {
  Client* client = client_of(stream);
  if (client == nullptr || (any_capture_open() && is_capturing(stream))) return call();
  if (synchronous) {
    client->jobs().touch_host_copy();
    return call();
  }
  client->jobs().touch(stream);
  const CUresult result = call();
  client->jobs().touch(stream);  // again: a poll in between has found the stream idle
  if (stream == CU_STREAM_PER_THREAD) client->jobs().mark_per_thread();
  return result;
}

template <class Call>
CUresult synchronise_stream(CUstream stream, Call call) noexcept {
  Client* client = g_only_client.load(std::memory_order_acquire);
  if (client == nullptr) return call();
  const std::uint64_t before = client->jobs().before_sync();
  const CUresult result = call();
  client->jobs().sync_returned();
  if (result == CUDA_SUCCESS) client->jobs().after_sync(before, stream);
  return result;
}

/// `context`: null for the current one.
template <class Call>
CUresult synchronise_context(CUcontext context, Call call) noexcept {
  Client* client = g_only_client.load(std::memory_order_acquire);
  if (client == nullptr) return call();
  if (context == nullptr) driver().cuCtxGetCurrent(&context);
  const std::uint64_t before = client->jobs().before_sync();
  const CUresult result = call();
  client->jobs().sync_returned();
  if (result == CUDA_SUCCESS) client->jobs().after_sync_context(before, context);
  return result;
}

}  // namespace sluice::intercept
