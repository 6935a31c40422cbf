#pragma once
#include <memory>

#include "intercept/driver/threads.hpp"
#include "intercept/pacing/event_pool.hpp"
#include "intercept/pacing/streams.hpp"
#include "intercept/slot/client_slot.hpp"
#include "shm/board.hpp"
#include "shm/gates.hpp"
#include "shm/give.hpp"
#include "shm/policy.hpp"

namespace sluice::intercept::test {

/// A client in slot 0 of a board in this process's memory. Nothing is preloaded: the driver is the
/// few functions that a test puts into g_process.driver, so a test decides what happens inside a
/// call.
class OwnClient {
 public:
  static inline bool under_mps = false;  ///< Clients that are made from now on.

  /// `reader`: the client can only read the board, as far as its library knows.
  explicit OwnClient(int priority, const char* policy = "gate", bool reader = false)
      : client_(seat(priority, policy, reader), 0, *shm::parse_policy(policy)) {}

  [[nodiscard]] shm::Board& board() noexcept { return *board_; }

  ClientSlot& operator*() noexcept { return client_; }
  ClientSlot* operator->() noexcept { return &client_; }
  [[nodiscard]] bool active() { return shm::is_active(client_.slot().job.load()); }

 private:
  Seat seat(int priority, const char* policy, bool reader) {
    g_process.driver_ready.store(true);
    g_process.driver.cuDeviceGetName = [](char*, int, CUdevice) { return CUDA_SUCCESS; };
    g_process.driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
      *value = which == CU_DEVICE_ATTRIBUTE_MPS_ENABLED && under_mps ? 1 : 0;
      return CUDA_SUCCESS;
    };
    const shm::SlotInfo info{shm::SlotState::kLive, static_cast<std::uint8_t>(priority), 0, 1};
    board_->slots[0].info.store(info.pack());
    board_->slots[0].requested_give.store(shm::pack_give(0));  // unless a test says otherwise
    board_->slots[0].policy.store(shm::parse_policy(policy)->pack());
    board_->slots[0].requested_policy.store(shm::parse_policy(policy)->pack());
    board_->used.store(1);
    return {*board_, reader ? nullptr : board_.get(), reader ? *words_ : board_->slots[0], 0, 1};
  }

  std::unique_ptr<shm::Board> board_ = std::make_unique<shm::Board>();
  std::unique_ptr<shm::Slot> words_ = std::make_unique<shm::Slot>();  ///< Of a reader.
  ClientSlot client_;
};

/// Its thread does nothing.
inline Worker& idle_worker() {
  static Worker worker("idle", [] { return Worker::Sleep{1'000'000'000, true}; });
  return worker;
}

/// A stream of a context of its own.
struct OwnStream : Stream {
  OwnStream() { pools = &of_context; }
  ContextEvents of_context{idle_worker()};
};

}  // namespace sluice::intercept::test
