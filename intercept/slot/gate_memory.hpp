#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "intercept/driver/contexts.hpp"
#include "intercept/slot/arrivals.hpp"
#include "intercept/slot/client_slot.hpp"

namespace sluice::intercept {

/// The words of a client's slot at their device addresses, and the stream waits on them.
///
/// Each client registers the board with the driver through a mapping of its own. A registration
/// ends with the context that made it, and a page can be registered once only. So clients of two
/// devices that shared a mapping would lose their waits together (measured on one H200, driver
/// 580).
class GateMemory {
 public:
  /// `view`: the board, mapped for this client alone. It must stay mapped until the process ends.
  GateMemory(ClientSlot& client, void* view) noexcept
      : client_(client),
        view_(view),
        arrivals_(client.shared().turn.arrived, client.time_scale()) {}

  [[nodiscard]] Arrivals& arrivals() noexcept { return arrivals_; }

  /// Call when a stream is new: registers the board if the policy needs it. The driver may block
  /// that later, while a queue is full, and perhaps only the launching thread can end that.
  void prepare() noexcept {
    if (client_.policy().waits_on_device() && client_.obeys()) {
      static_cast<void>(address());
    }
  }

  /// Puts a wait for the open gate into the stream. False if the driver refuses it; then the next
  /// launch is not gated. If the device cannot wait at all, the policy falls back to event:2.
  bool wait_for_open(CUstream stream) noexcept;
  /// Puts a wait into the stream until the slack is at least `gpu_ns` of GPU time.
  bool wait_for_slack(CUstream stream, std::uint64_t gpu_ns) noexcept;

  /// Puts the next number of the stream with this index into the stream (Arrivals). Only for a
  /// client that may write to the board. False if the driver refuses it.
  bool write_arrival(CUstream stream, int index) noexcept;

  struct Addresses {
    CUdeviceptr gate;
    CUdeviceptr slack;
  };
  /// The addresses for a graph of the current context. Nothing if the current context is not the
  /// one of the registration: a graph may outlive that context, and the driver refuses graphs that
  /// wait on memory that is no longer registered.
  [[nodiscard]] std::optional<Addresses> for_graphs() noexcept;

  /// For a context that has ended (a null handle: unknown which one). Drops the registration if it
  /// was made there.
  void context_ended(const ContextId& context) noexcept;

 private:
  static constexpr std::size_t kSlackBehindGate =
      offsetof(shm::Slot, slack_ns) - offsetof(shm::Slot, gate);
  static constexpr std::size_t kArrivalsBehindGate =
      offsetof(shm::Slot, turn) + offsetof(shm::TurnLine, arrived) - offsetof(shm::Slot, gate);
  /// The device address of the gate. Registers the board if necessary. 0 if that fails.
  CUdeviceptr address() noexcept;
  CUdeviceptr register_alone() noexcept;
  CUdeviceptr register_page() noexcept;
  CUresult put(CUstream stream, std::size_t behind_gate, std::uint64_t value,
               unsigned flags) noexcept;
  void fall_back(const char* why) noexcept;

  ClientSlot& client_;
  void* view_;
  Arrivals arrivals_;
  std::atomic<bool> registering_{false};          ///< A thread is inside register_page().
  std::atomic<std::uint32_t> contexts_ended_{0};  ///< Of those in which the board was registered.
  std::atomic<CUdeviceptr> gate_{0};              ///< 0: not registered.
  std::atomic<CUcontext> context_{nullptr};
  std::atomic<std::uint64_t> context_number_{0};
  std::atomic<bool> said_{false};
};

}  // namespace sluice::intercept
