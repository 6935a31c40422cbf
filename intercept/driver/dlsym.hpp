#pragma once

namespace sluice::intercept {

/// glibc's own dlsym. It never returns a hook, unless the search begins at the program itself.
void* real_dlsym(void* handle, const char* name) noexcept;

/// Whether a function at this address is glibc's dlsym. False before the first lookup.
bool is_real_dlsym(const void* address) noexcept;

}  // namespace sluice::intercept
