#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "shm/memory.hpp"

/// Who may hold how much device memory. Pure: no clock, no device, no thread.
namespace sluice::server::memory {

inline constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct BrokerOptions {
  std::uint64_t pool_bytes = 0;        ///< The server and its trainers together hold no more.
  std::uint64_t cold_cache_bytes = 0;  ///< Idle models that stay loaded although training could use
                                       ///< their memory.
  std::uint64_t max_idle_ns = 3'000'000'000;  ///< Then an idle model leaves; 0: never.
  std::uint64_t give_up_ns = 10'000'000'000;  ///< A model waits no longer for memory.
  /// Training gets memory back after so long without a shortage: each change costs it a batch.
  std::uint64_t grow_after_ns = 500'000'000;
  /// The least time between two shrinks of a trainer, unless a deadline would be missed.
  std::uint64_t shrink_gap_ns = 50'000'000;
  /// After so long without memory for a model, models that are in use let their requests wait.
  std::uint64_t patience_ns = 100'000'000;
  /// Grants are multiples of PyTorch's pages, and a shrink takes this much more than is needed:
  /// what the trainer caches in pages is never used to the last byte.
  std::uint64_t page_bytes = 20ULL << 20;
  std::uint64_t slack_bytes = 64ULL << 20;
};

/// A model whose weights come and go.
struct ModelMemory {
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;
  bool resident = false;  ///< It holds its memory.
  bool leaving = false;   ///< It takes no new batch, and is evicted once it has no users.
  std::size_t users = 0;  ///< Batches that wait for it or run; those of a leaving or cold
                          ///< model that began to wait are wants, not users.
  std::uint64_t last_used_ns = 0;
  std::uint64_t wanted_ns = kNever;    ///< Since when a batch has waited for the weights.
  std::uint64_t deadline_ns = kNever;  ///< Of the first such batch.

  [[nodiscard]] bool wanted() const { return !resident && wanted_ns != kNever; }
  [[nodiscard]] bool idle() const { return resident && users == 0 && wanted_ns == kNever; }
};

/// A training process.
struct TrainerState : shm::ClientMemory {
  std::uint64_t floor = 0;  ///< With less it can only sleep; asleep it holds `base`. 0: unknown.
  bool may_shrink = false;  ///< The broker may change its grant. Else only its held bytes count.
  bool sleeps = false;      ///< By an order of the broker.
  std::uint64_t shrunk_ns = 0;  ///< Last time its grant was lowered.
  std::uint64_t keeps = 0;  ///< Beyond its grant, although it has obeyed. It gives no more back.

  /// What it holds or may take at any moment.
  [[nodiscard]] std::uint64_t claim() const {
    return may_shrink && grant != shm::kNoLimit && grant > held ? grant : held;
  }
  /// What it must still give back.
  [[nodiscard]] std::uint64_t owed() const {
    return may_shrink && obeys && grant + keeps < held ? held - grant - keeps : 0;
  }
};

struct MemoryState {
  std::uint64_t now_ns = 0;
  std::uint64_t other_bytes = 0;    ///< Held by the server apart from weights.
  std::uint64_t loading_bytes = 0;  ///< By a model that is loaded for the first time, or for it.
  std::uint64_t missing_bytes = 0;  ///< Of the pool, held by somebody who is not known.
  std::uint64_t short_ns = 0;       ///< Last time a model had to wait for memory.
  std::vector<ModelMemory> models;
  std::vector<TrainerState> trainers;
};

/// What is free of the pool; below 0: more is in use.
[[nodiscard]] std::int64_t free_bytes(const BrokerOptions& options, const MemoryState& state);

/// What to do now, in this order.
struct Decision {
  struct Grant {
    std::size_t trainer = 0;  ///< Index into MemoryState::trainers.
    std::uint64_t bytes = 0;
    shm::MemoryOrder order = shm::MemoryOrder::kNone;  ///< kNone: the grant alone.
    bool wakes = false;                                ///< The grant ends the trainer's sleep.

    friend bool operator==(const Grant&, const Grant&) = default;
  };
  std::vector<std::uint32_t> evict;
  std::vector<Grant> grants;
  std::vector<std::uint32_t> leave;
  std::vector<std::uint32_t> load;
  std::vector<std::uint32_t> refuse;  ///< Models that will not get memory.
  std::uint64_t wake_ns = kNever;     ///< When to decide again at the latest.
};

/// Memory for the models that batches wait for comes from, in this order: what is free; models that
/// have been idle for `max_idle_ns`, beyond the cold cache, least recently used first; training
/// down to its smallest micro-batch; the other idle models; training asleep; and, after
/// `patience_ns`, models in use.
[[nodiscard]] Decision decide(const BrokerOptions& options, const MemoryState& state);

}  // namespace sluice::server::memory
