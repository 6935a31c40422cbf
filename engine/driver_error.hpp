#pragma once
#include <cuda.h>

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/context_lost.hpp"
#include "engine/out_of_memory.hpp"

namespace sluice::engine {

/// Whether a result of the driver says that the context is unusable from now on.
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

/// Throws ContextLost, OutOfMemory or base::RunError, with the name of the called entry and the
/// driver's name for the error, if `result` is one. `name_of`: the driver's cuGetErrorName.
inline void check_result(CUresult result, std::string_view call,
                         decltype(&cuGetErrorName) name_of) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  name_of(result, &name);
  const std::string what =
      std::string(call.substr(0, call.find('('))) +
      " failed: " + (name != nullptr ? name : "error " + std::to_string(static_cast<int>(result)));
  if (is_sticky(result)) throw ContextLost(what);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(what);
  throw base::RunError(what);
}

}  // namespace sluice::engine
