#include "intercept/driver/dlsym.hpp"

namespace sluice::intercept {

/// No driver is loaded here: g_process.driver is what the test says.
void* real_dlsym(void* /*handle*/, const char* /*name*/) noexcept { return nullptr; }
bool is_real_dlsym(const void* /*address*/) noexcept { return false; }

}  // namespace sluice::intercept
