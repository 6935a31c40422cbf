#include "intercept/driver/dlsym.hpp"

namespace sluice::intercept {

/// No driver is loaded here: g_process.driver is what the test says.
void* real_dlsym(void* /*handle*/, const char* /*name*/) noexcept { return nullptr; }

}  // namespace sluice::intercept
