#include "intercept/pacing/launch.hpp"

#include "intercept/client/interposer.hpp"
#include "intercept/pacing/capture.hpp"
#include "intercept/pacing/launch_count.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

constinit thread_local RememberedStreams t_streams;

namespace {

constinit const shm::HalfWord kNeverPaces{0};
constinit const shm::HalfWord kAlwaysPaces{1};

/// Whether the launch asks to start before the one in front of it has ended.
bool is_programmatic(const CUlaunchConfig& config) noexcept {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
  }
  return false;
}

RememberedStream* up_to_date(CUstream stream) noexcept {
  RememberedStream* const known = t_streams.find(stream);
  const bool valid = known != nullptr && known->stream != nullptr &&
                     known->version == g_process.version.load(std::memory_order_acquire);
  return valid ? known : nullptr;
}

/// From now on the thread launches into the stream by pass(), as long as nothing has to be done.
/// `version` was read before the stream was touched.
void remember(CUstream named, Stream& stream, std::uint64_t version, bool may_pass) noexcept {
  RememberedStream* place = t_streams.find(named);
  if (place == nullptr) place = &t_streams.take_place(named);
  const Client& client = *stream.client;
  *place = {};
  place->handle = reinterpret_cast<std::uintptr_t>(named);
  place->version = version;
  place->stream = &stream;
  const int stripe = may_pass ? launch_stripe() : -1;
  if (stripe < 0) return;
  place->stripe = static_cast<std::uint32_t>(stripe);
  place->entries = client.slot().entries.data();
  place->gate = &client.slot().gate;
  place->must_pace = !client.may_pace()  ? &kNeverPaces
                     : client.learning() ? &kAlwaysPaces
                                         : &client.slot().outranked;
}

}  // namespace

void RememberedStreams::forget_default_streams() noexcept {
  for (RememberedStream& place : places_) {
    if (place.handle <= reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD)) place = {};
  }
}

Work work_of(const CUlaunchConfig* config, CUfunction function) noexcept {
  Work work;
  work.function = function;
  if (config == nullptr) return work;
  work.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  work.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  work.shared_bytes = config->sharedMemBytes;
  work.programmatic = is_programmatic(*config);
  return work;
}

Stream* stream_of(CUstream stream, bool attach) {
  if (const RememberedStream* const known = up_to_date(stream)) return known->stream;
  return Interposer::instance().stream_of(stream, attach);
}

Launch::Launch(Entry entry, CUstream stream, const Work& work, Passed passed) noexcept
    : entry_(entry), named_(stream), work_(work) {
  const NoCancel whole;
  if (!if_memory_lasts([&] { prepare(passed); })) stream_ = nullptr;
}

/// Order: count, touch the job, pace, look at the gate. The gate comes last, because it may close
/// while we wait.
void Launch::prepare(Passed passed) {
  const std::uint64_t version = g_process.version.load();
  const RememberedStream* const known = up_to_date(named_);
  stream_ = known != nullptr ? known->stream : Interposer::instance().stream_of(named_, true);
  if (stream_ == nullptr) {
    if (passed == Passed::kNo) Interposer::instance().count_unattached(entry_);
    return;
  }
  Client& client = *stream_->client;
  const bool captured = any_capture_open() && is_capturing(named_);
  const shm::Count kind = captured ? shm::Count::kCaptured : client.kind_of_launch();
  if (passed == Passed::kNo || kind != shm::Count::kGated)
    client.counter(entry_, kind).fetch_add(1);
  if (passed == Passed::kCounted && kind != shm::Count::kGated) {
    client.counter(entry_, shm::Count::kGated).fetch_sub(1);
  }
  if (captured) {
    record_launch(client, entry_, named_, work_);
    stream_ = nullptr;
    return;
  }
  if (known == nullptr) {
    client.jobs().touch(*stream_);
    const bool may_pass = kind == shm::Count::kGated && !any_capture_open() &&
                          g_process.trace.load(std::memory_order_relaxed) == nullptr;
    remember(named_, *stream_, version, may_pass);
  }
  version_ = version;
  hold_and_pace();
}

void Launch::hold_and_pace() {
  Client& client = *stream_->client;
  if (client.must_pace()) turn_ = client.pacer().before(entry_, *stream_, named_, work_);
  if (client.gate_closed()) {
    client.hold(entry_);
    // Its policy has become device: what holds it then stands in its stream.
    if (client.policy().kind == shm::PolicyKind::kDevice && client.must_pace() &&
        turn_.policy.kind != shm::PolicyKind::kDevice) {
      turn_ = client.pacer().before(entry_, *stream_, named_, work_, true);
    }
  }
  if (Trace* const traced = g_process.trace.load()) traced->before_launch();
}

void Launch::done(CUresult result) noexcept {
  if (stream_ == nullptr) return;
  const NoCancel whole;
  if (Trace* const traced = g_process.trace.load()) {
    traced->after_launch(entry_, named_, work_.function, result);
  }
  if (turn_.number != 0 || turn_.sampled) {
    stream_->pacer->after(turn_, *stream_, named_, result);
  }
  // While this launch was held, another thread's synchronise may have ended the job.
  if (g_process.version.load() == version_) return;
  if_memory_lasts([&] { stream_->client->jobs().touch(*stream_); });
}

void copy_begins(CUstream stream, bool synchronous) noexcept {
  if (up_to_date(stream) != nullptr && !synchronous) return;
  const NoCancel whole;
  if_memory_lasts([&] {
    Stream* const target = stream_of(stream, true);
    if (target == nullptr || (any_capture_open() && is_capturing(stream))) return;
    Jobs& jobs = target->client->jobs();
    synchronous ? jobs.touch_host_copy() : jobs.touch(*target);
  });
}

}  // namespace sluice::intercept
