#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "server/memory/broker.hpp"
#include "server/training/trainer.hpp"

namespace sluice::server::memory {

/// The trainer's part of the pool: what the broker decides, said to the trainer, and whether it
/// obeys. Not thread-safe: for the memory thread. Times are CLOCK_MONOTONIC.
class TrainerShare {
 public:
  /// handover: called when a handover has ended.
  using Report = std::function<void(const training::Handover&)>;
  /// slack: what a trainer that has obeyed may hold beyond its grant.
  TrainerShare(training::Trainer& trainer, std::uint64_t wedged_ns, std::uint64_t slack,
               Report report)
      : trainer_(trainer), wedged_ns_(wedged_ns), slack_(slack), report_(std::move(report)) {}

  /// What the broker sees of the trainer. Nothing while none is attached.
  [[nodiscard]] std::optional<TrainerState> state();
  /// short_ns: since when memory has been short; 0: no model waits for it.
  void apply(const Decision::Grant& grant, std::uint64_t short_ns);

  /// Looks whether the trainer has obeyed. Ends it if it has not for too long, or if it keeps
  /// memory all the same and `lacks`: a model waits for memory, longer than a handover takes.
  void poll(std::uint64_t now, bool lacks);
  /// The server has taken memory, which took this long; its weights are in.
  void taken(std::uint64_t took_ns);
  void loaded(std::uint64_t took_ns);
  /// No model waits or loads any more. Reports the handover, if there was one.
  void settled();

 private:
  void order(shm::MemoryOrder kind, std::uint64_t short_ns);
  void look_for_done(const training::TrainerMemory& memory, std::uint64_t now);
  void obeyed(std::uint64_t since);
  void end(const char* why);

  training::Trainer& trainer_;
  const std::uint64_t wedged_ns_;
  const std::uint64_t slack_;
  const Report report_;

  bool sleeps_ = false;
  std::uint64_t shrunk_ns_ = 0;
  std::uint64_t epoch_ = 0;    ///< Of the order that is not obeyed yet; 0: none.
  std::uint64_t ordered_ = 0;  ///< TrainerMemory::process that has the last order.
  bool held_back_ = false;     ///< Its gate may be closed while it obeys.
  /// The last order was to sleep, and the trainer had not reported yet what it holds then.
  bool sleeps_unfitted_ = false;
  std::uint64_t ordered_ns_ = 0;
  /// The first order after which it has not come down to its grant; 0: none.
  std::uint64_t owes_since_ns_ = 0;
  std::uint64_t held_before_ = 0;
  std::optional<training::Handover> handover_;
};

}  // namespace sluice::server::memory
