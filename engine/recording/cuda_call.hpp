#pragma once
#include <cuda.h>

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/context_lost.hpp"

namespace sluice::engine {

/// Whether a result says that the context is unusable from now on.
inline bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:  // in the middle of work: the simulated GPU has died
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
      return true;
    default:
      return false;
  }
}

/// Throws base::RunError, or ContextLost, with the name of the called entry and the driver's name
/// for the error.
inline void check_cuda(CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  const std::string what =
      std::string(call.substr(0, call.find('('))) +
      " failed: " + (name != nullptr ? name : "error " + std::to_string(static_cast<int>(result)));
  if (is_sticky(result)) throw ContextLost(what);
  throw base::RunError(what);
}

}  // namespace sluice::engine

/// SLUICE_CUDA(cuStreamSynchronize(stream)): makes the call and throws if it fails.
#define SLUICE_CUDA(call) ::sluice::engine::check_cuda((call), #call)
