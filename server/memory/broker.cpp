#include "server/memory/broker.hpp"

#include <algorithm>
#include <tuple>

namespace sluice::server::memory {
namespace {

using Bytes = std::int64_t;

Bytes to_bytes(std::uint64_t bytes) { return static_cast<Bytes>(bytes); }

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t page) {
  return (bytes + page - 1) / page * page;
}

bool used_before(const ModelMemory* a, const ModelMemory* b) {
  return std::tie(a->last_used_ns, a->id) < std::tie(b->last_used_ns, b->id);
}

std::uint64_t total(const std::vector<ModelMemory*>& models) {
  std::uint64_t bytes = 0;
  for (const ModelMemory* model : models) bytes += model->bytes;
  return bytes;
}

class Broker {
 public:
  Broker(const BrokerOptions& options, const MemoryState& state)
      : options_(options), state_(state), free_(free_bytes(options, state)) {
    for (const ModelMemory& model : state_.models) {
      if (model.leaving) coming_ += to_bytes(model.bytes);
    }
    for (const TrainerState& trainer : state_.trainers) coming_ += to_bytes(trainer.owed());
  }

  Decision decide() {
    evict_leavers();
    find_wants();
    if (wants_.empty() && missing() <= 0) {
      evict_unused();
      grow();
    } else {
      find_memory();
      load();
    }
    return std::move(decision_);
  }

 private:
  [[nodiscard]] std::uint64_t now() const { return state_.now_ns; }
  void wake_at(std::uint64_t ns) { decision_.wake_ns = std::min(decision_.wake_ns, ns); }

  /// By deadline. A model without one counts as if it had one soon, else it would never be first.
  [[nodiscard]] std::tuple<std::uint64_t, std::uint32_t> urgency(const ModelMemory& model) const {
    return {std::min(model.deadline_ns, model.wanted_ns + options_.patience_ns), model.id};
  }

  void evict(ModelMemory& model) {
    free_ += to_bytes(model.bytes);
    if (model.leaving) coming_ -= to_bytes(model.bytes);
    model.resident = false;
    model.leaving = false;
    decision_.evict.push_back(model.id);
  }

  void evict_leavers() {
    for (ModelMemory& model : state_.models) {
      if (model.leaving && model.users == 0) evict(model);
    }
  }

  /// The wanted models that can be loaded at some time, most urgent first.
  void find_wants() {
    for (ModelMemory& model : state_.models) {
      if (!model.wanted()) continue;
      const bool fits = model.bytes + state_.other_bytes <= options_.pool_bytes;
      if (!fits || now() - model.wanted_ns >= options_.give_up_ns) {
        decision_.refuse.push_back(model.id);
        continue;
      }
      wake_at(model.wanted_ns + options_.give_up_ns);
      wants_.push_back(&model);
      needed_ += to_bytes(model.bytes);
    }
    std::ranges::sort(wants_, {}, [this](const ModelMemory* model) { return urgency(*model); });
  }

  /// Idle models, least recently used first.
  [[nodiscard]] std::vector<ModelMemory*> idle_models() {
    std::vector<ModelMemory*> idle;
    for (ModelMemory& model : state_.models) {
      if (model.idle() && !model.leaving) idle.push_back(&model);
    }
    std::ranges::sort(idle, used_before);
    return idle;
  }

  [[nodiscard]] Bytes missing() const { return needed_ - free_ - coming_; }

  /// Evicts idle models that have not been used for so long. Of all idle ones, `keep` bytes stay.
  void evict_idle(std::uint64_t keep, std::uint64_t unused_ns) {
    const auto idle = idle_models();
    std::uint64_t kept = total(idle);
    for (ModelMemory* model : idle) {
      if (missing() <= 0 || kept <= keep || now() < model->last_used_ns + unused_ns) return;
      kept -= model->bytes;
      evict(*model);
    }
  }

  void find_memory() {
    evict_idle(options_.cold_cache_bytes, options_.max_idle_ns);
    for (std::size_t i = 0; i < state_.trainers.size(); ++i) shrink(i);
    evict_idle(0, 0);
    if (!state_.trainers.empty() || coming_ > 0) wake_at(now() + kPollNs);
    // The pool may be overdrawn without a want: the server itself has grown.
    if (wants_.empty()) return;
    for (std::size_t i = 0; i < state_.trainers.size(); ++i) put_to_sleep(i);
    if (missing() > 0) make_users_wait();
  }

  /// Whether a trainer may be disturbed now.
  bool may_disturb(const TrainerState& trainer) {
    if (missing() <= 0 || !trainer.may_shrink) return false;
    const std::uint64_t calm_ns = trainer.shrunk_ns + options_.shrink_gap_ns;
    const bool urgent = !wants_.empty() && wants_.front()->deadline_ns < calm_ns;
    if (trainer.shrunk_ns == 0 || now() >= calm_ns || urgent) return true;
    wake_at(calm_ns);
    return false;
  }

  /// Lowers a grant by what is missing, down to the smallest micro-batch.
  void shrink(std::size_t index) {
    TrainerState& trainer = state_.trainers[index];
    if (!may_disturb(trainer)) return;
    const std::uint64_t lowest =
        trainer.obeys ? std::max(trainer.floor, trainer.base) : trainer.held;
    const std::uint64_t from = std::min(trainer.claim(), trainer.grant);
    // Nothing is known of what an obeying trainer without a floor needs.
    if (from <= lowest || (trainer.obeys && trainer.floor == 0)) return;
    const std::uint64_t wanted =
        round_up(static_cast<std::uint64_t>(missing()), options_.page_bytes) + options_.slack_bytes;
    set_grant(index, std::max(lowest, from - std::min(from, wanted)), shm::MemoryOrder::kShrink);
  }

  void put_to_sleep(std::size_t index) {
    TrainerState& trainer = state_.trainers[index];
    if (!trainer.obeys || trainer.sleeps || trainer.claim() <= trainer.base) return;
    if (!may_disturb(trainer)) return;
    set_grant(index, trainer.base, shm::MemoryOrder::kSleep);
    trainer.sleeps = true;
  }

  /// No order is needed if the trainer holds no more than its new grant.
  void set_grant(std::size_t index, std::uint64_t bytes,
                 shm::MemoryOrder order = shm::MemoryOrder::kNone) {
    TrainerState& trainer = state_.trainers[index];
    free_ += to_bytes(trainer.claim());
    coming_ -= to_bytes(trainer.owed());
    trainer.grant = bytes;
    free_ -= to_bytes(trainer.claim());
    coming_ += to_bytes(trainer.owed());
    if (order == shm::MemoryOrder::kShrink && trainer.held <= bytes)
      order = shm::MemoryOrder::kNone;
    std::erase_if(decision_.grants, [&](const auto& grant) { return grant.trainer == index; });
    decision_.grants.push_back({index, bytes, order});
  }

  /// A model that is always in use would otherwise keep its memory as long as requests come.
  void make_users_wait() {
    const ModelMemory& first = *wants_.front();
    if (now() - first.wanted_ns < options_.patience_ns) {
      return wake_at(first.wanted_ns + options_.patience_ns);
    }
    std::vector<ModelMemory*> used;
    for (ModelMemory& model : state_.models) {
      // One that has come in runs the batches that waited for it first. Otherwise two models could
      // send each other away indefinitely.
      const bool awaited = model.wanted_ns != kNever;
      if (model.resident && !model.leaving && !awaited) used.push_back(&model);
    }
    std::ranges::sort(used, used_before);
    for (ModelMemory* model : used) {
      if (to_bytes(first.bytes) <= free_ + coming_) return;
      model->leaving = true;
      coming_ += to_bytes(model->bytes);
      decision_.leave.push_back(model->id);
    }
  }

  /// In order: a smaller model that came later must not take what the first waits for.
  void load() {
    for (const ModelMemory* model : wants_) {
      if (to_bytes(model->bytes) > free_) return;
      free_ -= to_bytes(model->bytes);
      decision_.load.push_back(model->id);
    }
  }

  void evict_unused() {
    if (options_.max_idle_ns == 0) return;
    const auto idle = idle_models();
    std::uint64_t kept = total(idle);
    for (ModelMemory* model : idle) {
      if (kept <= options_.cold_cache_bytes) return;
      const std::uint64_t until = model->last_used_ns + options_.max_idle_ns;
      if (now() < until) return wake_at(until);
      kept -= model->bytes;
      evict(*model);
    }
  }

  /// Gives training what is free.
  void grow() {
    for (std::size_t i = 0; i < state_.trainers.size(); ++i) {
      const TrainerState& trainer = state_.trainers[i];
      if (!trainer.may_shrink) continue;
      wake_at(now() + kTickNs);
      if (trainer.grant == shm::kNoLimit) {
        // Until now it could take all.
        const std::uint64_t more = free_ <= 0 ? 0 : static_cast<std::uint64_t>(free_);
        set_grant(i, trainer.held + more);
        continue;
      }
      const std::uint64_t calm_ns = std::max(state_.short_ns, trainer.shrunk_ns);
      if (calm_ns != 0 && now() - calm_ns < options_.grow_after_ns) continue;
      grow(i);
    }
  }

  void grow(std::size_t index) {
    const TrainerState& trainer = state_.trainers[index];
    const Bytes more = free_ - to_bytes(options_.slack_bytes);
    // Less than its smallest micro-batch needs: it does not run, and any memory may help.
    const bool idle = trainer.sleeps || trainer.held < trainer.floor;
    const std::uint64_t least = idle ? 0 : trainer.slope;
    if (trainer.owed() > 0 || more < to_bytes(std::max(least, options_.page_bytes))) return;
    const std::uint64_t bytes = trainer.claim() + static_cast<std::uint64_t>(more) /
                                                      options_.page_bytes * options_.page_bytes;
    // A floor is an estimate. Where no model has memory, there will never be more to try it with.
    const bool any_resident = std::ranges::any_of(state_.models, &ModelMemory::resident);
    if (trainer.sleeps && bytes < trainer.floor && any_resident) return;
    set_grant(index, bytes);
    decision_.grants.back().wakes = trainer.sleeps;
  }

  static constexpr std::uint64_t kPollNs = 200'000;
  static constexpr std::uint64_t kTickNs = 10'000'000;

  const BrokerOptions& options_;
  MemoryState state_;
  Decision decision_;
  std::vector<ModelMemory*> wants_;
  Bytes needed_ = 0;  ///< By the wanted models.
  Bytes free_;
  Bytes coming_ = 0;  ///< Owed by trainers and leaving models.
};

}  // namespace

std::int64_t free_bytes(const BrokerOptions& options, const MemoryState& state) {
  Bytes free = to_bytes(options.pool_bytes) - to_bytes(state.other_bytes) -
               to_bytes(state.loading_bytes) - to_bytes(state.missing_bytes);
  for (const ModelMemory& model : state.models) {
    if (model.resident) free -= to_bytes(model.bytes);
  }
  for (const TrainerState& trainer : state.trainers) free -= to_bytes(trainer.claim());
  return free;
}

Decision decide(const BrokerOptions& options, const MemoryState& state) {
  return Broker(options, state).decide();
}

}  // namespace sluice::server::memory
