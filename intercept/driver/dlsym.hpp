#pragma once

namespace sluice::intercept {

/// glibc's own dlsym. Never returns a hook, except through a search that begins at the program.
void* real_dlsym(void* handle, const char* name) noexcept;

}  // namespace sluice::intercept
