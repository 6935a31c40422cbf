#pragma once
#include "intercept/driver.hpp"

namespace sluice::intercept {

class Client;

/// One empty kernel of this process, so that the GPU switches to its context before the job that
/// was announced begins: a switch takes 0.11 to 0.13 ms (measured on one H200, driver 580).
class Kick {
 public:
  explicit Kick(const Client& client) noexcept : client_(client) {}
  /// In a stream of its own. Does nothing under MPS, where nothing is switched, where the program
  /// has no primary context on the device, and where this client is held itself: a kick is not
  /// gated. For one thread, which may wait for the driver.
  void operator()() noexcept { use(true); }
  /// What the first kick would have to load first, which takes 10 ms.
  void load() noexcept {
    if (nothing_ == nullptr) use(false);
  }
  /// Whether there is nothing to load.
  [[nodiscard]] bool is_ready() const noexcept;
  /// The context (null: perhaps any) is gone; no question is asked meanwhile (question.hpp).
  void forget_context(CUcontext context) noexcept;

 private:
  void use(bool launch) noexcept;
  [[nodiscard]] bool prepare() noexcept;

  [[nodiscard]] bool may_kick() const noexcept;

  const Client& client_;
  CUcontext context_ = nullptr;
  bool hopeless_ = false;  ///< There is no kick to be had in this context: not tried again.
  CUstream stream_ = nullptr;
  CUfunction nothing_ = nullptr;
};

}  // namespace sluice::intercept
