#pragma once
#include <cuda.h>

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace sluice::engine {

/// Throws base::RunError with the name of the called entry and the driver's name for the error.
inline void check_cuda(CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw base::RunError(
      std::string(call.substr(0, call.find('('))) +
      " failed: " + (name != nullptr ? name : "error " + std::to_string(static_cast<int>(result))));
}

}  // namespace sluice::engine

/// SLUICE_CUDA(cuStreamSynchronize(stream)): makes the call and throws if it fails.
#define SLUICE_CUDA(call) ::sluice::engine::check_cuda((call), #call)
