#include "intercept/pacing/streams.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "intercept/driver/machine.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

void LaunchLock::wait() noexcept {
  constexpr int kSpins = 100;
  constexpr std::uint64_t kLongNs = 1'000'000'000;
  const auto taken = [this] { return taken_.load(std::memory_order_relaxed); };
  do {
    for (int i = 0; i < kSpins && taken(); ++i) pause_processor();
    if (taken()) nap_while(taken, kLongNs);
  } while (!try_lock());
}

void Stream::restart(const Key& of, const ContextId& in, ContextEvents& of_context) noexcept {
  key = of;
  context = in.handle;
  context_number = in.number;
  pools = &of_context;
  policy = {};
  launches = 0;
  // What a launch that outlasted the stream before has spent is nobody's.
  ++accounts;
  const std::uint64_t left_ns = std::exchange(run_ns, 0);
  if (account != nullptr) account->fetch_sub(left_ns);
  owes_wait = false;
  idle = false;
  previous = 0;
  sampler.restart();
  lives.store(true);  // the rest is seen by whoever sees this
}

void StreamList::add(Stream& stream) noexcept {
  remove(stream);
  stream.list = this;
  stream.before = std::exchange(last_, &stream);
  (stream.before == nullptr ? first_ : stream.before->after) = &stream;
  ++size_;
}

void StreamList::remove(Stream& stream) noexcept {
  StreamList* const in = std::exchange(stream.list, nullptr);
  if (in == nullptr) return;
  (stream.before == nullptr ? in->first_ : stream.before->after) = stream.after;
  (stream.after == nullptr ? in->last_ : stream.after->before) = stream.before;
  stream.before = stream.after = nullptr;
  --in->size_;
}

Stream::Key Streams::key_of(CUstream stream, CUcontext context) noexcept {
  if (stream == CU_STREAM_PER_THREAD) return {stream, context, thread_id()};
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return {nullptr, context, 0};
  return {stream, nullptr, 0};
}

Stream* Streams::find(const Stream::Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : found->second;
}

Stream* Streams::add(const Stream::Key& key, const ContextId& context, ContextEvents& pools,
                     Client& client, Pacer& pacer) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  if (Stream* const left = of_ended_thread(key)) return left;
  Stream*& free = free_[&client];
  if (free == nullptr) {
    free = &records_.emplace_back();
    free->client = &client;
    free->pacer = &pacer;
  }
  known_.emplace(key, free);  // or throws, and the record stays free
  Stream* const stream = std::exchange(free, free->next);
  stream->next = nullptr;
  stream->restart(key, context, pools);
  pools.channels.set_known(static_cast<std::size_t>(std::ranges::count_if(
      known_, [&](const auto& known) { return known.second->pools == &pools; })));
  return stream;
}

/// Looks at two records for each that is asked for. So there are at most about as many records of
/// ended threads as of living ones. The events belong to the context, which is the same. The
/// caller holds the lock.
Stream* Streams::of_ended_thread(const Stream::Key& key) {
  constexpr int kLooks = 2;
  if (key.thread == 0) return nullptr;
  for (int i = 0; i < kLooks; ++i) {
    Stream::Key after = key;
    after.thread = looked_at_ + 1;
    const auto at = known_.lower_bound(after);
    const bool ours =
        at != known_.end() && at->first.handle == key.handle && at->first.context == key.context;
    looked_at_ = ours ? at->first.thread : 0;
    if (!ours || !ThreadMarks::is_gone(looked_at_)) continue;
    auto node = known_.extract(at);
    Stream* const stream = node.mapped();
    node.key() = key;
    stream->key.thread = key.thread;
    known_.insert(std::move(node));
    return stream;
  }
  return nullptr;
}

Streams::Names Streams::names_of(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  return {stream.key, stream.context};
}

/// The caller holds the lock.
void Streams::take(Stream& stream, Stream*& taken) noexcept {
  if (stream.taken_by == 0) ++taken_;
  stream.taken_by = thread_id();
  stream.taken_ns = base::monotonic_ns();
  stream.given_up = false;
  stream.next = std::exchange(taken, &stream);
}

Stream* Streams::take_out(const Stream::Key& key) noexcept {
  Stream* taken = nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  take(*found->second, taken);
  known_.erase(found);
  g_process.forget_remembered();
  return taken;
}

Stream* Streams::take_out(const ContextId& context) noexcept {
  Stream* taken = nullptr;
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const auto& known) {
    Stream& stream = *known.second;
    if (!context.ends({stream.context, stream.context_number})) return false;
    take(stream, taken);
    return true;
  });
  if (taken != nullptr) g_process.forget_remembered();
  return taken;
}

Stream* Streams::take_lost() noexcept {
  Stream* taken = nullptr;
  const std::lock_guard lock(mutex_);
  if (taken_ == 0) return nullptr;
  for (Stream& stream : records_) {
    if (stream.taken_by != 0 && ThreadMarks::is_gone(stream.taken_by)) take(stream, taken);
  }
  return taken;
}

void Streams::reuse(Stream* ended) noexcept {
  const std::lock_guard lock(mutex_);
  while (ended != nullptr) {
    Stream* const next = ended->next;
    if (std::exchange(ended->taken_by, 0) != 0) --taken_;
    Stream*& free = free_.find(ended->client)->second;
    ended->next = std::exchange(free, ended);
    ended = next;
  }
}

/// The caller holds the lock. False if another record has the place, or there is no memory.
bool Streams::put_back(Stream& stream) noexcept {
  bool back = false;
  if_memory_lasts([&] { back = known_.emplace(stream.key, &stream).second; });
  if (!back) return false;
  stream.taken_by = 0;
  --taken_;
  return true;
}

}  // namespace sluice::intercept
