#pragma once
#include "behaviour.hpp"

namespace fake {

/// cuGetProcAddress as the driver has it: the newest form that `version` may see, the per-thread
/// form where asked for, and exact exported names too.
CUresult find_proc(const char* symbol, void** found, int version, cuuint64_t flags);

FAKE_ENTRY(cuGetProcAddress, const char* symbol, void** found, int version, cuuint64_t flags) {
  return find_proc(symbol, found, version, flags);
}

FAKE_ENTRY(cuGetProcAddress_v2, const char* symbol, void** found, int version, cuuint64_t flags,
           CUdriverProcAddressQueryResult* status) {
  const CUresult result = find_proc(symbol, found, version, flags);
  if (status != nullptr) {
    *status =
        result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

}  // namespace fake
