#pragma once
#include "intercept/driver/driver.hpp"

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace sluice::intercept {

/// Stream 0 of a per-thread entry is the thread's own default stream: our calls name it so.
inline CUstream per_thread(CUstream stream) noexcept {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}
inline CUstream plain(CUstream stream) noexcept { return stream; }

/// A real entry that this driver is too old to have.
template <class Function, class... Args>
CUresult call_real(Function function, Args... args) noexcept {
  return function == nullptr ? CUDA_ERROR_NOT_SUPPORTED : function(args...);
}

}  // namespace sluice::intercept
