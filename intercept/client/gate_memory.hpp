#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/client/client_slot.hpp"

namespace sluice::intercept {

/// The words of a client's slot as its GPU sees them, and the waits on them.
///
/// The page is registered with the driver through a mapping of this client's own: a registration
/// ends with the context that made it, and a page is registered once, so clients of two devices
/// that shared a mapping would lose their waits together (measured on one H200, driver 580).
class GateMemory {
 public:
  /// `view`: the board, mapped for this client alone. Lives as long as the process.
  GateMemory(ClientSlot& client, void* view) noexcept : client_(client), view_(view) {}

  /// Puts a wait for the open gate into the stream. False if the driver refuses it: then the
  /// launch behind it is not gated. Where the device cannot wait at all, the policy falls back.
  bool wait_for_open(CUstream stream) noexcept;
  /// Puts a wait into the stream until an announced job leaves so much GPU time.
  bool wait_for_slack(CUstream stream, std::uint64_t gpu_ns) noexcept;

  struct Addresses {
    CUdeviceptr gate;
    CUdeviceptr slack;
    std::uint64_t generation;  ///< Changes when the addresses become void.
  };
  /// For graphs of the current context; nothing outside the context of the registration: a graph
  /// may outlive that one, and the driver refuses graphs that wait on memory no longer registered.
  [[nodiscard]] std::optional<Addresses> for_graphs() noexcept;
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_.load(); }

  [[nodiscard]] bool waits_at(CUdeviceptr address) const noexcept {
    const CUdeviceptr gate = gate_.load();
    return gate != 0 && (address == gate || address == gate + kSlackBehindGate);
  }
  /// A context (null: perhaps any) has been destroyed, and the registration with it.
  void context_ended(CUcontext context) noexcept;

 private:
  static constexpr std::size_t kSlackBehindGate =
      offsetof(shm::Slot, slack_ns) - offsetof(shm::Slot, gate);
  /// The device address of the gate, registered now if it is not. 0 if it cannot be.
  CUdeviceptr address() noexcept;
  CUdeviceptr register_page() noexcept;
  CUresult put(CUstream stream, std::size_t behind_gate, std::uint64_t value,
               unsigned flags) noexcept;
  void fall_back(const char* why) noexcept;

  ClientSlot& client_;
  void* view_;
  std::mutex registering_;
  std::atomic<CUdeviceptr> gate_{0};  ///< 0: not registered.
  std::atomic<CUcontext> context_{nullptr};
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<bool> said_{false};
};

}  // namespace sluice::intercept
