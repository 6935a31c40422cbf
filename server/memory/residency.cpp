#include "server/memory/residency.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "engine/context_lost.hpp"
#include "engine/out_of_memory.hpp"

namespace sluice::server::memory {
namespace {

/// How soon the end of a copy is seen: the weights of a block take milliseconds.
constexpr std::uint64_t kCopyPollNs = 50'000;
/// How soon a new trainer is seen.
constexpr std::uint64_t kTrainerLookNs = 10'000'000;
/// How long memory that somebody else seems to use is left alone.
constexpr std::uint64_t kMissingNs = 1'000'000'000;
/// PCI Express 5.0 with 16 lanes carries 64 GB/s at most.
constexpr std::uint64_t kMostBytesPerNs = 64;

}  // namespace

Residency::Residency(const ResidencyOptions& options, training::Trainer* trainer,
                     ResidencyEvents events)
    : options_(options), events_(std::move(events)) {
  counters_.pool_bytes = options_.broker.pool_bytes;
  if (trainer != nullptr) {
    const auto report = [this](const training::Handover& handover) {
      {
        const std::lock_guard lock(mutex_);
        ++counters_.handovers;
      }
      events_.handover(handover);
    };
    share_.emplace(*trainer, options_.wedged_ns, options_.broker.slack_bytes, report);
  }
  thread_ = std::thread([this] { loop(); });
}

Residency::~Residency() { stop(); }

void Residency::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake();
    room_settled_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

/// With mutex_ held.
void Residency::wake() {
  news_ = true;
  changed_.notify_one();
}

void Residency::add(std::uint32_t model, std::vector<engine::Weights*> weights) {
  if (weights.empty()) return;
  const std::lock_guard lock(mutex_);
  Tenant& tenant = tenants_[model];
  tenant.state = State::kReady;
  tenant.memory.id = model;
  for (const engine::Weights* each : weights) tenant.memory.bytes += each->bytes();
  tenant.memory.last_used_ns = base::monotonic_ns();
  tenant.weights = std::move(weights);
  room_ = {};  // else its bytes would count twice until the room ends
  wake();
}

void Residency::remove(std::uint32_t model) {
  const std::lock_guard moves(moves_);
  const std::lock_guard lock(mutex_);
  tenants_.erase(model);
  wake();
}

bool Residency::acquire(std::uint32_t model, std::uint64_t deadline_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = tenants_.find(model);
  if (found == tenants_.end()) return true;
  Tenant& tenant = found->second;
  ModelMemory& memory = tenant.memory;
  if (tenant.state == State::kReady && !memory.leaving && tenant.waiting == 0) {
    ++memory.users;
    return true;
  }
  if (tenant.waiting++ == 0) memory.wanted_ns = base::monotonic_ns();
  memory.deadline_ns = std::min(memory.deadline_ns, deadline_ns);
  wake();
  return false;
}

bool Residency::admit(std::uint32_t model) {
  const std::lock_guard lock(mutex_);
  Tenant& tenant = tenants_.at(model);
  if (tenant.state != State::kReady || tenant.memory.leaving) return false;
  ++tenant.memory.users;
  if (--tenant.waiting == 0) tenant.memory.wanted_ns = tenant.memory.deadline_ns = kNever;
  return true;
}

void Residency::release(std::uint32_t model, bool waits) {
  const std::lock_guard lock(mutex_);
  const auto found = tenants_.find(model);
  if (found == tenants_.end()) return;
  Tenant& tenant = found->second;
  if (waits) {
    if (--tenant.waiting == 0) tenant.memory.wanted_ns = tenant.memory.deadline_ns = kNever;
  } else {
    --tenant.memory.users;
    tenant.memory.last_used_ns = base::monotonic_ns();
  }
  if (tenant.memory.leaving || short_since_ns_ != 0) wake();
}

Residency::Counters Residency::counters() const {
  const std::lock_guard lock(mutex_);
  Counters counters = counters_;
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.state != State::kOut) counters.resident_bytes += tenant.memory.bytes;
  }
  MemoryState state;
  count_others(state);
  counters.loading_bytes = state.loading_bytes;
  counters.other_bytes = state.other_bytes;
  if (short_since_ns_ != 0) counters.short_ns = base::monotonic_ns() - short_since_ns_;
  return counters;
}

bool Residency::resident(std::uint32_t model) const {
  const std::lock_guard lock(mutex_);
  const auto found = tenants_.find(model);
  return found == tenants_.end() || found->second.state == State::kReady;
}

std::uint64_t Residency::bytes(std::uint32_t model) const {
  const std::lock_guard lock(mutex_);
  const auto found = tenants_.find(model);
  return found == tenants_.end() ? 0 : found->second.memory.bytes;
}

std::uint64_t Residency::cold_ns(std::uint32_t model) const {
  const std::lock_guard lock(mutex_);
  const auto found = tenants_.find(model);
  if (found == tenants_.end() || found->second.state == State::kReady) return 0;
  const Tenant& tenant = found->second;
  return tenant.cold_ns != 0 ? tenant.cold_ns : tenant.memory.bytes / kMostBytesPerNs + 1;
}

void Residency::loop() {
  try {
    while (true) {
      std::uint64_t wake_ns = kNever;
      bool unlimited = false;
      {
        const std::lock_guard moves(moves_);
        Lock lock(mutex_);
        if (stop_) return;
        news_ = false;
        watch_copies(lock);
        const std::uint64_t now = base::monotonic_ns();
        const MemoryState state = look(now);
        const Decision decision = decide(options_.broker, state);
        note_shortage(state, decision);
        unlimited = note_unlimited(state);
        apply(lock, state, decision);
        wake_ns = std::min(decision.wake_ns, next_look_ns());
      }
      if (unlimited) {
        events_.log(
            "training has started while models wait for memory; until they have it, "
            "training has no limit and may take what they wait for");
      }
      Lock lock(mutex_);
      wait(lock, wake_ns);
    }
  } catch (const base::RunError& error) {
    // Who has which memory is not known any more.
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      room_settled_.notify_all();
    }
    events_.context_lost(error.what());
  }
}

/// When to look again although nobody calls.
std::uint64_t Residency::next_look_ns() const {
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t next_ns = kNever;
  const std::uint64_t idle_ns = options_.broker.max_idle_ns;
  if (idle_ns > 0 && !tenants_.empty()) next_ns = now + std::max(idle_ns / 10, kTrainerLookNs);
  if (share_) next_ns = std::min(next_ns, now + kTrainerLookNs);
  if (now < missing_until_ns_) next_ns = std::min(next_ns, missing_until_ns_);
  if (moving()) next_ns = std::min(next_ns, now + kCopyPollNs);
  return next_ns;
}

void Residency::wait(Lock& lock, std::uint64_t wake_ns) {
  const auto ready = [this] { return stop_ || news_; };
  if (wake_ns == kNever) return changed_.wait(lock, ready);
  const auto at = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(wake_ns));
  changed_.wait_until(lock, at, ready);
}

/// What the broker sees.
MemoryState Residency::look(std::uint64_t now) {
  MemoryState state;
  state.now_ns = now;
  state.short_ns = short_ns_;
  for (const auto& [id, tenant] : tenants_) {
    ModelMemory memory = tenant.memory;
    memory.resident = tenant.state != State::kOut;
    state.models.push_back(memory);
  }
  count_others(state);
  if (now < missing_until_ns_) state.missing_bytes = missing_bytes_;
  if (share_) {
    const std::uint64_t short_for_ns = short_since_ns_ == 0 ? 0 : now - short_since_ns_;
    share_->poll(now, short_for_ns > options_.broker.patience_ns);
    if (const auto trainer = share_->state()) state.trainers.push_back(*trainer);
  }
  look_at_room(state);
  return state;
}

/// What the server holds apart from the weights of loaded models.
void Residency::count_others(MemoryState& state) const {
  std::uint64_t resident = 0;
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.state != State::kOut) resident += tenant.memory.bytes;
  }
  const std::uint64_t held = events_.held();
  state.other_bytes = held - std::min(held, resident);
  if (room_.state == RoomState::kNone) return;
  const std::uint64_t before = std::min(room_.before, state.other_bytes);
  // Until the model is loaded, nobody else is promised the rest of its room.
  state.loading_bytes = std::max(state.other_bytes - before, room_.promised);
  state.other_bytes = before;
}

bool Residency::model_waits() const {
  if (room_.state == RoomState::kAsked || room_.state == RoomState::kWanted) return true;
  return std::ranges::any_of(tenants_, [](const auto& entry) {
    return entry.second.state == State::kOut && entry.second.memory.wanted_ns != kNever;
  });
}

/// Memory is short while a model waits that cannot be loaded at once.
void Residency::note_shortage(const MemoryState& state, const Decision& decision) {
  const auto wants = std::ranges::count_if(state.models, &ModelMemory::wanted);
  if (static_cast<std::size_t>(wants) <= decision.load.size() + decision.refuse.size()) {
    short_since_ns_ = 0;
    return;
  }
  short_ns_ = state.now_ns;
  if (short_since_ns_ == 0) short_since_ns_ = state.now_ns;
}

/// Whether to say that training has no limit now. A limit of what it holds would end it before its
/// first batch.
bool Residency::note_unlimited(const MemoryState& state) {
  const bool unlimited =
      short_since_ns_ != 0 && std::ranges::any_of(state.trainers, [](const TrainerState& trainer) {
        return trainer.may_shrink && trainer.grant == shm::kNoLimit;
      });
  const bool said = std::exchange(unlimited_, unlimited);
  return unlimited && !said;
}

void Residency::apply(Lock& lock, const MemoryState& state, const Decision& decision) {
  evict(lock, decision.evict);
  for (const Decision::Grant& grant : decision.grants) share_->apply(grant, short_since_ns_);
  for (const std::uint32_t model : decision.leave) tenants_.at(model).memory.leaving = true;
  for (const std::uint32_t model : decision.load) {
    if (model != kRoom) {
      load(lock, model);
      continue;
    }
    room_.promised = state.loading_bytes + room_.memory.bytes;
    settle_room(RoomState::kThere);
  }
  for (const std::uint32_t model : decision.refuse) {
    if (model == kRoom) {
      settle_room(RoomState::kRefused);
    } else {
      settle(lock, model, "there is no memory for its weights");
    }
  }
}

void Residency::evict(Lock& lock, const std::vector<std::uint32_t>& models) {
  // All at once: a batch could begin on the second while the first is unmapped without the lock.
  std::vector<engine::Weights*> leaving;
  for (const std::uint32_t model : models) {
    Tenant& tenant = tenants_.at(model);
    tenant.state = State::kOut;
    tenant.memory.leaving = false;
    ++counters_.evictions;
    leaving.insert(leaving.end(), tenant.weights.begin(), tenant.weights.end());
  }
  lock.unlock();
  for (engine::Weights* weights : leaving) weights->evict();
  for (std::size_t i = 0; i < models.size(); ++i) events_.evicted();
  lock.lock();
}

void Residency::load(Lock& lock, std::uint32_t model) {
  Tenant& tenant = tenants_.at(model);
  tenant.load_ns = base::monotonic_ns();
  std::string error;
  bool no_memory = false;
  lock.unlock();
  try {
    for (engine::Weights* weights : tenant.weights) weights->load();
  } catch (const engine::ContextLost&) {
    throw;
  } catch (const engine::OutOfMemory&) {
    no_memory = true;
  } catch (const base::RunError& failure) {
    error = failure.what();
  }
  const bool failed = no_memory || !error.empty();
  if (failed) {
    for (engine::Weights* weights : tenant.weights) weights->evict();
  }
  const std::uint64_t now = base::monotonic_ns();
  if (!failed) events_.taken(now - tenant.load_ns);
  if (!failed && share_) share_->taken(now - tenant.load_ns);
  lock.lock();
  if (no_memory) {
    // The pool is less than it seemed. The next decision frees other memory, or waits.
    missing_bytes_ = (now < missing_until_ns_ ? missing_bytes_ : 0) + tenant.memory.bytes;
    missing_until_ns_ = now + kMissingNs;
    wake();
  }
  if (!error.empty()) settle(lock, model, error);
  if (failed) return;
  tenant.state = State::kComing;
  tenant.complete = false;
  ++counters_.loads;
}

/// With a model's first block its batches may begin.
void Residency::watch_copies(Lock& lock) {
  bool any = model_waits();
  for (auto& [id, tenant] : tenants_) {
    any = any || tenant.memory.wanted_ns != kNever;
    if (tenant.state == State::kOut || tenant.complete) continue;
    std::size_t least = ~std::size_t{0};
    tenant.complete = true;
    for (engine::Weights* weights : tenant.weights) {
      // One look: a copy may end between two, and then the model would never settle.
      const std::size_t loaded = weights->loaded_blocks();
      least = std::min(least, loaded);
      tenant.complete = tenant.complete && loaded == weights->blocks();
    }
    any = any || !tenant.complete;
    if (tenant.complete && tenant.load_ns != 0) note_loaded(base::monotonic_ns() - tenant.load_ns);
    if (tenant.state == State::kComing && least > 0) settle(lock, id, "");
  }
  if (any || !share_) return;
  lock.unlock();
  share_->settled();
  lock.lock();
}

void Residency::note_loaded(std::uint64_t took_ns) {
  events_.loaded(took_ns);
  if (share_) share_->loaded(took_ns);
}

/// Says that a model's batches may run, or why they may not.
void Residency::settle(Lock& lock, std::uint32_t model, const std::string& error) {
  Tenant& tenant = tenants_.at(model);
  if (error.empty()) {
    tenant.state = State::kReady;
    const std::uint64_t now = base::monotonic_ns();
    tenant.memory.last_used_ns = now;
    if (tenant.memory.wanted_ns != kNever) tenant.cold_ns = now - tenant.memory.wanted_ns;
  }
  lock.unlock();
  events_.settled(model, error);
  lock.lock();
}

bool Residency::moving() const {
  return std::ranges::any_of(tenants_, [](const auto& entry) {
    return entry.second.state != State::kOut && !entry.second.complete;
  });
}

}  // namespace sluice::server::memory
