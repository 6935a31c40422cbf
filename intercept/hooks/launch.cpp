#include "intercept/hooks/launch.hpp"

#include <dlfcn.h>

#include <string_view>

#include "intercept/client/interposer.hpp"
#include "intercept/pacing/captures.hpp"
#include "intercept/pacing/launch_count.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

constinit thread_local RememberedStreams t_streams;

namespace {

constinit const shm::HalfWord kNeverPaces{0};
constinit const shm::HalfWord kAlwaysPaces{1};
constinit const shm::Word kNeverCloses{0};

RememberedStream* up_to_date(CUstream stream) noexcept {
  RememberedStream* const known = t_streams.find(stream);
  const bool valid = known != nullptr && known->stream != nullptr &&
                     known->version == g_process.version.load(std::memory_order_acquire);
  return valid ? known : nullptr;
}

/// Whether this is a forked child, whose slot is its parent's.
bool is_parents_slot() noexcept {
  if (!in_forked_child()) return false;
  Interposer::report_forked_child();
  return true;
}

/// Lets the thread's next launches into the stream go through pass(), as long as nothing else has
/// to be done for them. `version` was read before the stream was touched. `kind` is the counter for
/// these launches; kCaptured means that every launch has more to do.
void remember(CUstream named, Stream& stream, std::uint64_t version, shm::Count kind) noexcept {
  RememberedStream& place = t_streams.place_for(named);
  place.version = version;
  place.stream = &stream;
  if (kind == shm::Count::kCaptured) return;
  const Client& client = *stream.client;
  const int stripe = kind == shm::Count::kGated ? launch_stripe() : -1;
  shm::EntryCounters& first = client.slot().entries.front();
  place.kind = kind;
  place.exclusive = stripe >= 0;
  place.counts = stripe >= 0 ? &first.stripe(static_cast<std::size_t>(stripe)) : &first[kind];
  place.gate = kind == shm::Count::kGated ? &client.shared().gate : &kNeverCloses;
  const bool learns = client.may_pace() && client.learning();
  place.outranked = learns ? &kAlwaysPaces : &client.shared().outranked;
  place.heeded = shm::kOrdered | (client.may_pace() ? shm::kOutranked | shm::kTakesTurns : 0);
}

void remember_unattached(CUstream named, std::uint64_t version, shm::Word& counts) noexcept {
  RememberedStream& place = t_streams.place_for(named);
  place.version = version;
  place.counts = &counts;
  place.kind = shm::Count::kBypassUnattached;
  place.gate = &kNeverCloses;
  place.outranked = &kNeverPaces;
}

}  // namespace

RememberedStream& RememberedStreams::place_for(CUstream stream) noexcept {
  RememberedStream* place = find(stream);
  if (place == nullptr) {
    const std::size_t first = first_place(stream);
    place = &places_[first];
    RememberedStream& second = places_[first ^ 1U];
    if (place->version >= second.version) second = *place;
  }
  *place = {};
  place->handle = reinterpret_cast<std::uintptr_t>(stream);
  return *place;
}

void RememberedStreams::forget_default_streams() noexcept {
  for (RememberedStream& place : places_) {
    if (place.handle <= reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD)) place = {};
  }
}

std::uint64_t kind_of(const Work& work) noexcept {
  constexpr std::uint64_t kPrime = 0x100000001b3;  // FNV-1
  std::uint64_t kind = reinterpret_cast<std::uintptr_t>(work.function) ^
                       reinterpret_cast<std::uintptr_t>(work.graph);
  for (const unsigned blocks : work.grid) kind = (kind * kPrime) ^ blocks;
  return kind * kPrime | 1;
}

Work work_of(const CUlaunchConfig* config, CUfunction function) noexcept {
  Work work;
  work.function = function;
  if (config == nullptr) return work;
  work.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  work.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  work.shared_bytes = config->sharedMemBytes;
  return work;
}

Stream* stream_of(CUstream stream, bool attach) {
  if (const RememberedStream* const known = up_to_date(stream)) return known->stream;
  if (is_parents_slot()) return nullptr;
  return Interposer::instance().stream_of(stream, attach);
}

void Launch::uncount() noexcept {
  Client& client = *stream_->client;
  refused_ = true;
  client.orders().count_refused();
  client.counter(entry_, counted_).fetch_sub(1);
  draw().undo(drawn_);
}

CUresult Launch::refusal(const void* caller) noexcept {
  Dl_info library{};
  if (dladdr(caller, &library) == 0 || library.dli_fname == nullptr) return kRefused;
  const std::string_view path = library.dli_fname;
  return path.substr(path.rfind('/') + 1).starts_with("libcudnn") ? CUDA_SUCCESS : kRefused;
}

/// An order may come while the launch is held or paced, so it looks for one before and after.
void Launch::hold_and_pace() {
  if (refuse()) return;
  Client& client = *stream_->client;
  if (client.must_pace()) client.pacer().before(entry_, *stream_, named_, work_, place_);
  if (client.gate_closed()) {
    client.hold(entry_);
    // The policy has become a device policy while the launch was held, so the launch needs a stream
    // wait.
    if (client.policy().waits_on_device() && client.must_pace() &&
        !place_.policy.waits_on_device()) {
      client.pacer().before(entry_, *stream_, named_, work_, place_, true);
    }
  }
  if (refuse()) {
    if (place_.sampled != nullptr) client.pacer().after(place_, *stream_, named_, kRefused);
    return;
  }
  if (Trace* const traced = g_process.trace.load()) traced->before_launch();
  if (drawn_ != 0) client.pacer().measure(*stream_, named_, work_, drawn_, place_);
}

Launch::Launch(Entry entry, CUstream stream, const Work& work, shm::Count counted) noexcept
    : entry_(entry),
      named_(stream),
      work_(work),
      drawn_(draw().take(draw_of(entry), counted != shm::Count::kSize)) {
  const RememberedStream* const known = up_to_date(stream);
  if (known != nullptr && known->counts != nullptr && counted == known->kind) [[likely]] {
    stream_ = known->stream;
    version_ = known->version;
    counted_ = counted;
    hold_and_pace();
    return;
  }
  if (!if_memory_lasts([&] { prepare(counted); })) stream_ = nullptr;
}

/// Order: count, touch the job, pace, look at the gate. The gate comes last, because it may close
/// while the pacer waits.
void Launch::prepare(shm::Count counted) {
  if (is_parents_slot()) return;
  const std::uint64_t version = g_process.version.load();
  const RememberedStream* const known = up_to_date(named_);
  stream_ = known != nullptr ? known->stream : Interposer::instance().stream_of(named_, true);
  if (stream_ == nullptr) {
    Interposer& self = Interposer::instance();
    if (counted == shm::Count::kSize)
      self.unattached_count(entry_).fetch_add(1, std::memory_order_relaxed);
    if (!self.may_attach()) {
      remember_unattached(named_, version, self.unattached_count(Entry{}));
    }
    return;
  }
  Client& client = *stream_->client;
  const bool captured = any_capture_open() && is_capturing(named_);
  const shm::Count kind = captured ? shm::Count::kCaptured : client.kind_of_launch();
  count_as(kind, counted);
  if (captured) {
    draw().undo(drawn_);
    stream_ = nullptr;
    return;
  }
  counted_ = kind;
  if (refuse()) return;  // no job begins
  if (known == nullptr) {
    client.jobs().touch(*stream_, kind_of(work_));
    const bool more = any_capture_open() || g_process.trace.load() != nullptr;
    remember(named_, *stream_, version, more ? shm::Count::kCaptured : kind);
  }
  version_ = version;
  hold_and_pace();
}

void Launch::count_as(shm::Count kind, shm::Count counted) noexcept {
  if (counted == kind) return;
  Client& client = *stream_->client;
  client.counter(entry_, kind).fetch_add(1);
  if (counted == shm::Count::kBypassUnattached) {
    Interposer::instance().uncount_unattached(client, entry_);
  } else if (counted != shm::Count::kSize) {
    client.counter(entry_, counted).fetch_sub(1);
  }
}

void Launch::done(CUresult result) noexcept {
  if (stream_ == nullptr) return;
  if (Trace* const traced = g_process.trace.load()) {
    traced->after_launch(entry_, named_, work_.function, result);
  }
  if (place_.number != 0 || place_.sampled != nullptr || place_.marks_end) {
    stream_->pacer->after(place_, *stream_, named_, result);
  }
  // While this launch was held, a synchronising call of another thread may have ended the job.
  if (g_process.version.load() == version_) return;
  stream_->client->jobs().touch(*stream_);
}

void work_given(CUstream stream) noexcept {
  const NoCancel whole;
  if_memory_lasts([&] {
    Stream* const target = stream_of(stream, false);
    const bool captured = any_capture_open() && is_capturing(stream);
    if (target != nullptr && !captured) target->client->jobs().touch(*target);
  });
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
