#pragma once
#include <cstdint>

#include "intercept/driver/contexts.hpp"
#include "intercept/slot/client_slot.hpp"

/// What is done before a job of a client: the clients of lower priority on the same device learn of
/// it, and the GPU switches.
namespace sluice::intercept {

/// GPU time from the end of lower work until the GPU works for this client.
[[nodiscard]] std::uint64_t switch_ns(const ClientSlot& client) noexcept;
/// How long before the start of a job the gates must close: the work that may then still run, and a
/// context switch. Real ns.
[[nodiscard]] std::uint64_t lead_of(const ClientSlot& client) noexcept;
/// The same, or 0 if no client below has a device policy and a slice that is not short. Then
/// nothing is predicted, and the published policies behave as published.
[[nodiscard]] std::uint64_t lead_if_wanted(const ClientSlot& client) noexcept;
[[nodiscard]] bool has_lower_clients(const ClientSlot& client) noexcept;

/// The clients that closed gates would stop on the GPU: those under a device policy.
struct LowerClients {
  /// Names the set and the widths under MPS, without those that have never used the GPU; 0: there
  /// is none at all.
  std::uint64_t id = 0;
  bool narrow = false;           ///< Under MPS, none that uses the GPU may use all SMs.
  bool busy = false;             ///< One of them uses the GPU (is_busy()).
  bool wants = false;            ///< Or would use it: a client that is always held uses nothing.
  std::uint64_t longest_ns = 0;  ///< The longest work of theirs, in GPU time, as far as known.
};
[[nodiscard]] LowerClients lower_clients(const ClientSlot& client, std::uint64_t now_ns) noexcept;

/// Programs that have a time slice each before those below run: busy ones that closed gates do not
/// stop, also outside Sluice.
[[nodiscard]] std::uint32_t sharers(const ClientSlot& client, std::uint64_t now_ns) noexcept;

/// Writes the slack: the time left until the GPU must be free for a job that begins at `start_ns`.
/// Invalid from `until_ns` on. Real ns.
void tell_slack(const ClientSlot& client, std::uint64_t start_ns, std::uint64_t until_ns) noexcept;
/// Makes the slack unlimited: no job is near.
void tell_no_job(const ClientSlot& client) noexcept;

/// Launches one empty kernel of this process, so that the GPU switches to its context before an
/// announced job begins: a switch takes 0.11 to 0.13 ms (measured on one H200, driver 580).
///
/// There is no early switch under MPS, where the GPU does not switch, nor for a client of priority
/// 0, which holds nobody, nor if the program has no primary context on the device.
class EarlySwitch {
 public:
  explicit EarlySwitch(const ClientSlot& client) noexcept : client_(client) {}
  /// Launches the kernel in a stream of its own. Does nothing while this client is held, because
  /// the kernel is not gated. For one thread, which may block in the driver.
  void operator()() noexcept;
  /// For a context that has ended (a null handle: unknown which one), and with it the kernel. The
  /// caller holds a QueryBan.
  static void forget_context(const ContextId& context) noexcept;

 private:
  [[nodiscard]] bool may_switch() const noexcept;

  const ClientSlot& client_;
};

/// Brackets a call that retains a device's primary context. If the call creates the context, the
/// kernel of the early switch is loaded now, which takes 10 ms. A later load would be wrong: while
/// the driver loads a module, it waits for all work of the context and accepts no launch, and that
/// work may wait for a launch or for the program (seen on one H200, driver 580). Other threads that
/// retain the context wait until the kernel is loaded, for at most 2 s. The thread must not be
/// cancelled meanwhile (NoCancel).
class RetainPrimary {
 public:
  explicit RetainPrimary(CUdevice device) noexcept;
  /// Call when the driver's call has returned; `context` is null if it failed. `wanted`: this
  /// process may ever need an early switch.
  void returned(CUcontext context, bool wanted) noexcept;

 private:
  CUdevice device_;
  bool begins_ = false;
};

}  // namespace sluice::intercept
