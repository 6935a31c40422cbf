#include "intercept/driver/process.hpp"

namespace sluice::intercept {

constinit Process g_process;

}  // namespace sluice::intercept
