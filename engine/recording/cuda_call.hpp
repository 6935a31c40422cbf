#pragma once
#include "engine/driver_error.hpp"

namespace sluice::engine {

/// check_result() for the driver that this program links.
inline void check_cuda(CUresult result, std::string_view call) {
  check_result(result, call, cuGetErrorName);
}

}  // namespace sluice::engine

/// SLUICE_CUDA(cuStreamSynchronize(stream)): makes the call; throws as check_result() does.
#define SLUICE_CUDA(call) ::sluice::engine::check_cuda((call), #call)
