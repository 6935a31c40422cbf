#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/weights.hpp"
#include "server/memory/broker.hpp"
#include "server/memory/trainer_share.hpp"

namespace sluice::server::memory {

struct ResidencyOptions {
  BrokerOptions broker;
  std::uint64_t wedged_ns = 10'000'000'000;  ///< See training::Trainer::end().
};

/// What happens. Called from the memory thread.
struct ResidencyEvents {
  /// The first block of a model that batches wait for can run. Or, with an error, it will not.
  std::function<void(std::uint32_t model, const std::string& error)> settled;
  std::function<void(const std::string& why)> context_lost;
  std::function<void(const training::Handover&)> handover;
  std::function<void(std::uint64_t ns)> taken;   ///< Device memory was mapped for a model.
  std::function<void(std::uint64_t ns)> loaded;  ///< A model's weights were copied.
  std::function<void()> evicted;                 ///< A model's weights have left.
  std::function<void(const std::string&)> log;   ///< A line for people.
  /// The device memory that this process holds; 0: unknown.
  std::function<std::uint64_t()> held;
};

/// Which models have their weights on the device. A thread of its own moves them, as the broker
/// decides. Thread-safe.
class Residency {
 public:
  /// trainer: null if there is none.
  Residency(const ResidencyOptions& options, training::Trainer* trainer, ResidencyEvents events);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;
  ~Residency();
  /// From now on nothing moves, and no event comes.
  void stop();

  /// A model whose weights are loaded. `weights`: of its instances; they live until remove().
  void add(std::uint32_t model, std::vector<engine::Weights*> weights);
  /// No batch uses the model any more. Unknown models are ignored.
  void remove(std::uint32_t model);

  /// Memory for a model that is being loaded, whose size nobody knows yet. One at a time, from
  /// before the load until add(): what the server takes meanwhile counts as the model's.
  class Room {
   public:
    explicit Room(Residency& residency);
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    ~Room();
    /// Waits until `more` bytes are free beyond what is free now, or else all that can be. They
    /// come from where decide() takes memory for any model, and nobody else is promised them.
    /// False: there is no more memory.
    [[nodiscard]] bool make(std::uint64_t more);

   private:
    Residency& residency_;
  };

  /// A batch needs a model. True: it may run, and the model stays. False: it waits for settled(),
  /// and then calls admit(). The batches of a model run in the order of these calls. A model
  /// without weights may always run.
  [[nodiscard]] bool acquire(std::uint32_t model, std::uint64_t deadline_ns);
  /// For a batch that waits: whether it may run now.
  [[nodiscard]] bool admit(std::uint32_t model);
  /// A batch has ended; waits: while it waited.
  void release(std::uint32_t model, bool waits);

  struct Counters {
    std::uint64_t pool_bytes = 0;
    std::uint64_t resident_bytes = 0;
    std::uint64_t loading_bytes = 0;  ///< See MemoryState.
    std::uint64_t other_bytes = 0;
    std::uint64_t short_ns = 0;  ///< For so long, a model has waited for memory; 0: none waits.
    std::uint64_t loads = 0;
    std::uint64_t evictions = 0;
    std::uint64_t handovers = 0;
  };
  [[nodiscard]] Counters counters() const;
  [[nodiscard]] bool resident(std::uint32_t model) const;
  [[nodiscard]] std::uint64_t bytes(std::uint32_t model) const;
  /// How long a batch will wait for the weights, by the last time, or at least the time of the
  /// copy; 0: they are in.
  [[nodiscard]] std::uint64_t cold_ns(std::uint32_t model) const;

 private:
  enum class State : std::uint8_t { kOut, kComing, kReady };
  /// A model that has weights.
  struct Tenant {
    std::vector<engine::Weights*> weights;
    State state = State::kOut;
    bool complete = false;      ///< All weights are in.
    std::uint64_t load_ns = 0;  ///< Begin of the last load.
    std::uint64_t cold_ns = 0;  ///< From the last wish for the weights to their first block.
    std::size_t waiting = 0;    ///< Batches without admission.
    ModelMemory memory;
  };
  enum class RoomState : std::uint8_t { kNone, kLoading, kAsked, kWanted, kThere, kRefused };
  struct RoomWish {
    RoomState state = RoomState::kNone;
    std::uint64_t more = 0;      ///< As asked for.
    ModelMemory memory;          ///< As a model that is wanted.
    std::uint64_t before = 0;    ///< What the server held apart from weights before the load.
    std::uint64_t promised = 0;  ///< kThere: the loaded model may take so much.
  };
  using Lock = std::unique_lock<std::mutex>;

  void loop();
  [[nodiscard]] MemoryState look(std::uint64_t now);
  void count_others(MemoryState& state) const;
  void look_at_room(MemoryState& state);
  void settle_room(RoomState state);
  [[nodiscard]] bool model_waits() const;
  void note_shortage(const MemoryState& state, const Decision& decision);
  [[nodiscard]] bool note_unlimited(const MemoryState& state);
  void apply(Lock& lock, const MemoryState& state, const Decision& decision);
  void evict(Lock& lock, const std::vector<std::uint32_t>& models);
  void load(Lock& lock, std::uint32_t model);
  void watch_copies(Lock& lock);
  void note_loaded(std::uint64_t took_ns);
  void settle(Lock& lock, std::uint32_t model, const std::string& error);
  [[nodiscard]] bool moving() const;
  [[nodiscard]] std::uint64_t next_look_ns() const;
  void wait(Lock& lock, std::uint64_t wake_ns);
  void wake();

  const ResidencyOptions options_;
  const ResidencyEvents events_;
  std::optional<TrainerShare> share_;

  /// Held while weights move, before mutex_.
  std::mutex moves_;
  mutable std::mutex mutex_;  ///< Guards all below but thread_.
  std::condition_variable changed_;
  bool news_ = false;
  bool stop_ = false;
  std::map<std::uint32_t, Tenant> tenants_;
  /// What the broker knows the room by.
  static constexpr std::uint32_t kRoom = ~0U;
  RoomWish room_;
  std::condition_variable room_settled_;
  std::uint64_t short_since_ns_ = 0;  ///< 0: memory is not short.
  std::uint64_t short_ns_ = 0;        ///< Last time it was.
  bool unlimited_ = false;            ///< Training has no grant although memory is short.
  /// The device had less memory than the pool: so much is missing, until then.
  std::uint64_t missing_bytes_ = 0;
  std::uint64_t missing_until_ns_ = 0;
  Counters counters_;
  std::thread thread_;
};

}  // namespace sluice::server::memory
