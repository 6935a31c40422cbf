#pragma once
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

/// The primary context of a device, from the program's last successful retain; null if there was
/// none.
CUcontext primary_context(CUdevice device) noexcept;
void note_primary_context(CUdevice device, CUcontext context) noexcept;

/// Whether anything in this process retains the primary context.
bool primary_is_active(CUdevice device) noexcept;

}  // namespace sluice::intercept
