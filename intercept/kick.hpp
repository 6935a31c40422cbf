#pragma once
#include <atomic>

#include "intercept/driver.hpp"

namespace sluice::intercept {

class Client;

/// One empty kernel of this process, so that the GPU switches to its context before the job that
/// was announced begins: a switch takes 0.11 to 0.13 ms (measured on one H200, driver 580). There
/// is none under MPS, where nothing is switched, for a client of priority 0, which holds nobody
/// back, on a second device, and where the program has no primary context on the device.
class Kick {
 public:
  explicit Kick(const Client& client) noexcept : client_(client) {}
  /// Before the first launch of the program, by the thread that is about to launch. Not later, nor
  /// beside another thread's, nor once another device works, which may wait for this one: the
  /// driver blocks while it loads a module beside a kernel that waits for a later launch, and that
  /// launch with it (seen on one H200, driver 580). Takes 10 ms, once.
  void make() noexcept;
  /// In a stream of its own. Does nothing where there is no kick, and where this client is held
  /// itself: a kick is not gated. For one thread, which may wait for the driver.
  void operator()() noexcept;
  /// The context (null: perhaps any) is gone, and the kick with it. No question is asked meanwhile
  /// (question.hpp).
  void forget_context(CUcontext context) noexcept;

 private:
  [[nodiscard]] bool may_kick() const noexcept;

  const Client& client_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::atomic<CUfunction> nothing_{nullptr};  ///< Written last.
};

}  // namespace sluice::intercept
