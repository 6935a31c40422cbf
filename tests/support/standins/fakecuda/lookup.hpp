#pragma once
#include "behaviour.hpp"

extern "C" SLUICE_FAKE_API CUresult cuStreamBeginFutureCapture(CUstream stream,
                                                               CUstreamCaptureMode mode);

namespace fake {

SLUICE_FAKE_ENTRY(cuGetProcAddress, const char* symbol, void** found, int version,
                  cuuint64_t flags) {
  return find_entry(symbol, found, version, flags);
}

SLUICE_FAKE_ENTRY(cuGetProcAddress_v2, const char* symbol, void** found, int version,
                  cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  const CUresult result = find_entry(symbol, found, version, flags);
  if (status != nullptr) {
    *status =
        result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

}  // namespace fake
