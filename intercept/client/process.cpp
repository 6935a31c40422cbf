#include "intercept/client/process.hpp"

namespace sluice::intercept {

constinit Process g_process;

}  // namespace sluice::intercept
