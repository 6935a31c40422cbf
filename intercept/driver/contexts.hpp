#pragma once
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/driver/driver.hpp"

/// Which context is which. The driver gives the handle of a context that has ended to the next one,
/// and never its number. So what is kept about a context is kept under both.
namespace sluice::intercept {

struct ContextId {
  CUcontext handle = nullptr;
  std::uint64_t number = 0;  ///< 0: unknown, so the handle alone decides.

  /// Whether both name the same context.
  [[nodiscard]] bool is(const ContextId& other) const noexcept {
    return handle == other.handle && (number == other.number || number == 0 || other.number == 0);
  }
  /// For a context that has ended (a null handle: unknown which one): whether what belongs to
  /// `other` has ended.
  [[nodiscard]] bool ends(const ContextId& other) const noexcept {
    return handle == nullptr || is(other);
  }
};

/// For a living context, or none (null).
[[nodiscard]] ContextId identify(CUcontext context) noexcept;

/// The primary context of a device, from the program's last successful retain. A null handle if
/// there was none.
[[nodiscard]] ContextId primary_id(CUdevice device) noexcept;
inline CUcontext primary_context(CUdevice device) noexcept { return primary_id(device).handle; }

/// Whether anything in this process retains the primary context. Nothing if the driver does not
/// say.
[[nodiscard]] std::optional<bool> primary_state(CUdevice device) noexcept;
inline bool primary_is_active(CUdevice device) noexcept {
  return primary_state(device).value_or(false);
}

/// Brackets a retain of a primary context. The thread has a reference meanwhile, so what it notes
/// is the number of a living context, and a number that differs from the noted one is newer.
class PrimaryRetain {
 public:
  explicit PrimaryRetain(CUdevice device) noexcept;
  ~PrimaryRetain();
  PrimaryRetain(const PrimaryRetain&) = delete;
  PrimaryRetain& operator=(const PrimaryRetain&) = delete;
  /// Call when the driver's call has succeeded. `ended` is called for the context that was noted
  /// before, if that is another one. Nobody else returns from a retain of the device until then.
  template <class Ended>
  void returned(CUcontext context, Ended ended) noexcept {
    const std::lock_guard lock(g_process.primaries_noting);
    const ContextId before = note(context);
    if (before.handle != nullptr) ended(before);
  }

 private:
  [[nodiscard]] ContextId note(CUcontext context) const noexcept;
  CUdevice device_;
};

/// After a release of a primary context by a thread that had a reference to `was`: whether that has
/// ended. Another one may have begun by now. Then a thread is inside a retain, and this waits until
/// that thread has noted the new one.
[[nodiscard]] bool primary_has_ended(CUdevice device, const ContextId& was) noexcept;

}  // namespace sluice::intercept
