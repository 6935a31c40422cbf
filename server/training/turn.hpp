#pragma once

namespace sluice::server {

/// Whether critical requests or training have the device. The dispatcher's thread asks; no call
/// waits.
class Turn {
 public:
  Turn() = default;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  virtual ~Turn() = default;

  /// Critical requests want the device. Returns whether they may run now. If not, training has been
  /// asked to leave, and Dispatcher::wake() follows when it has.
  [[nodiscard]] virtual bool take() = 0;
  /// No critical request waits or runs any more.
  virtual void give_back() = 0;
};

}  // namespace sluice::server
