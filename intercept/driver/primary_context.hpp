#pragma once
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

/// The primary context of a device as the program last retained it; null if it never did.
CUcontext primary_context(CUdevice device) noexcept;
void note_primary_context(CUdevice device, CUcontext context) noexcept;

/// Whether somebody in this process holds it.
bool primary_is_active(CUdevice device) noexcept;

}  // namespace sluice::intercept
