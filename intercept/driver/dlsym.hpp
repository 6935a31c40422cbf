#pragma once

namespace sluice::intercept {

/// glibc's own dlsym. It never returns a hook, unless the search begins at the program itself.
void* real_dlsym(void* handle, const char* name) noexcept;

}  // namespace sluice::intercept
