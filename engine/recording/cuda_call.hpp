#pragma once
#include <cuda.h>

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/context_lost.hpp"
#include "engine/out_of_memory.hpp"
#include "engine/sticky_error.hpp"

namespace sluice::engine {

/// Throws base::RunError, OutOfMemory or ContextLost, with the name of the called entry and the
/// driver's name for the error.
inline void check_cuda(CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  const std::string what =
      std::string(call.substr(0, call.find('('))) +
      " failed: " + (name != nullptr ? name : "error " + std::to_string(static_cast<int>(result)));
  if (is_sticky(result)) throw ContextLost(what);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(what);
  throw base::RunError(what);
}

}  // namespace sluice::engine

/// SLUICE_CUDA(cuStreamSynchronize(stream)): makes the call and throws if it fails.
#define SLUICE_CUDA(call) ::sluice::engine::check_cuda((call), #call)
