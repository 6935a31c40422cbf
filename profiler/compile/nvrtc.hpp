#pragma once
#include <string>

/// CUDA C to a binary, with NVRTC, which is loaded at run time.
namespace sluice::profiler {

/// Throws base::RunError with the first error line of the compiler if the source is not correct, or
/// if there is no NVRTC. `arch`: sm_90, for instance.
[[nodiscard]] std::string compile_cuda(const std::string& source, const std::string& arch);

/// Whether NVRTC can be loaded. $SLUICE_NVRTC names its file if it is in no usual place.
[[nodiscard]] bool has_nvrtc();

}  // namespace sluice::profiler
