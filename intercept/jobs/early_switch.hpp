#pragma once
#include "intercept/client/client_slot.hpp"

namespace sluice::intercept {

/// One empty kernel of this process, so that the GPU switches to its context before the job that
/// was announced begins: a switch takes 0.11 to 0.13 ms (measured on one H200, driver 580). There
/// is none under MPS, where nothing is switched, for a client of priority 0, which holds nobody
/// back, and where the program has no primary context on the device.
class EarlySwitch {
 public:
  explicit EarlySwitch(const ClientSlot& client) noexcept : client_(client) {}
  /// In a stream of its own. Does nothing where there is no kick, and where this client is held
  /// itself: a kick is not gated. For one thread, which may wait for the driver.
  void operator()() noexcept;
  /// The context (null: perhaps any) is gone, and the kick with it. No question is asked meanwhile
  /// (question.hpp).
  static void forget_context(CUcontext context) noexcept;

 private:
  [[nodiscard]] bool may_switch() const noexcept;

  const ClientSlot& client_;
};

/// Brackets a call that retains a device's primary context. Where that begins the kick is loaded,
/// which takes 10 ms. Not later: while it loads a module the driver waits for all work of the
/// context, and takes no launch; that work may wait for a launch, or for the program (seen on one
/// H200, driver 580). So who else retains the context is kept until it is done, 2 s at most.
class RetainPrimary {
 public:
  explicit RetainPrimary(CUdevice device) noexcept;
  /// The call has returned, with no context if it failed. `wanted`: this process may have something
  /// to switch to. No destructor does it: see ThreadMarks.
  void returned(CUcontext context, bool wanted) noexcept;

 private:
  CUdevice device_;
  bool begins_ = false;
};

}  // namespace sluice::intercept
