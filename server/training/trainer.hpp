#pragma once
#include <cstddef>
#include <cstdint>

#include "shm/memory.hpp"

/// The trainer of a server, as the parts that share out time and memory see it. One trainer runs at
/// a time: a process that `sluice serve` has started.
namespace sluice::server::training {

/// The memory of a trainer at one moment. Bytes.
struct TrainerMemory : shm::ClientMemory {
  bool attached = false;      ///< Its process is a client on the board. Else all else is zero.
  std::uint64_t process = 0;  ///< Counts the trainers: an order is for one process.
  std::size_t min_items = 1;  ///< The fewest items of a micro-batch; below that it can only sleep.
};

/// What is held on the devices of the server at one moment. Bytes.
struct MemoryUse {
  std::uint64_t infer = 0;  ///< By the server.
  std::uint64_t train = 0;  ///< By its trainer.
  std::uint64_t total = 0;  ///< By all clients of these devices.
};

/// One handover of memory from the trainer to inference, and how long each part took. ns; 0: the
/// part did not occur.
struct Handover {
  std::uint64_t at_ns = 0;     ///< CLOCK_MONOTONIC, when memory was found to be short.
  std::uint64_t bytes = 0;     ///< That the trainer gave back.
  std::uint64_t order_ns = 0;  ///< Until the order was on the board.
  shm::ObeyParts obey;
  std::uint64_t take_ns = 0;  ///< Until inference had mapped pages of its own.
  std::uint64_t load_ns = 0;  ///< Until the weights were in.
  bool obeyed = true;         ///< False: the time of --wedged-s was over first.
};

/// Thread-safe. No call waits but wait_done().
class Trainer {
 public:
  Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  virtual ~Trainer() = default;

  [[nodiscard]] virtual TrainerMemory memory() const = 0;

  /// Whether the mode lets the broker shrink this trainer, and by which order: kDrop under
  /// colocate-l1, kShrink under colocate-l2. False: only modes decide, so leave its grant alone.
  [[nodiscard]] virtual bool may_shrink(shm::MemoryOrder& by) const = 0;

  /// Bytes that it may hold from now on. Does nothing without an attached trainer: a new one begins
  /// with shm::kNoLimit.
  virtual void set_grant(std::uint64_t bytes) = 0;

  /// Gives an order, in place of a pending one. Returns its epoch for wait_done(), or 0 if there is
  /// no trainer that obeys.
  [[nodiscard]] virtual std::uint64_t order(shm::MemoryOrder kind) = 0;

  /// Waits until the order has been obeyed or its trainer is gone with its memory: true. False at
  /// `until_ns` (CLOCK_MONOTONIC). Epoch 0 is obeyed.
  [[nodiscard]] virtual bool wait_done(std::uint64_t epoch, std::uint64_t until_ns) = 0;

  /// How the last order was obeyed. If the trainer did not wait for its GPU work, only `drop_ns` is
  /// not 0; all is 0 for a trainer that is gone.
  [[nodiscard]] virtual shm::ObeyParts parts() const = 0;

  /// Until the trainer has obeyed, nothing holds it: behind a closed gate it would not get to the
  /// end of its micro-batch. kDrop, kSleep and kEpoch do that by themselves.
  virtual void let_run() = 0;

  /// After kSleep or kEpoch: it may train again, as far as its grant allows.
  virtual void resume() = 0;

  /// Kills a trainer that did not obey in time. Its job ends with an error that says `why`.
  virtual void end(const char* why) = 0;
};

}  // namespace sluice::server::training
