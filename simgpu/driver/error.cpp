#include <map>

#include "simgpu/driver/api.hpp"

namespace {

struct Text {
  const char* name;
  const char* meaning;
};

#define SLUICE_ERROR(code, meaning) \
  {                                 \
    code, { #code, meaning }        \
  }

const Text* find(CUresult error) {
  static const std::map<CUresult, Text> kTexts = {
      SLUICE_ERROR(CUDA_SUCCESS, "no error"),
      SLUICE_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
      SLUICE_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
      SLUICE_ERROR(CUDA_ERROR_NOT_INITIALIZED, "driver not initialised"),
      SLUICE_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "the simulated GPU's process cannot be reached"),
      SLUICE_ERROR(CUDA_ERROR_NO_DEVICE, "no device is visible"),
      SLUICE_ERROR(CUDA_ERROR_INVALID_DEVICE, "no such device"),
      SLUICE_ERROR(CUDA_ERROR_INVALID_IMAGE, "not a module image"),
      SLUICE_ERROR(CUDA_ERROR_INVALID_CONTEXT, "no valid context"),
      SLUICE_ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "execution affinity is not simulated"),
      SLUICE_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
      SLUICE_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid handle"),
      SLUICE_ERROR(CUDA_ERROR_ILLEGAL_STATE, "not possible in this state"),
      SLUICE_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
      SLUICE_ERROR(CUDA_ERROR_NOT_READY, "not ready"),
      SLUICE_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is active"),
      SLUICE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel faulted"),
      SLUICE_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is destroyed"),
      SLUICE_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the memory is registered already"),
      SLUICE_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the memory is not registered"),
      SLUICE_ERROR(CUDA_ERROR_NOT_PERMITTED, "not permitted"),
      SLUICE_ERROR(CUDA_ERROR_NOT_SUPPORTED, "not supported by the simulated GPU"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted while a stream captures"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier error ended the capture"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures would merge"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began on another stream"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream of the capture was not joined"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency on work that is not captured"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                   "implicit dependency on a capturing stream through the legacy stream"),
      SLUICE_ERROR(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture"),
      SLUICE_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began in another thread"),
      SLUICE_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graphs differ too much to update"),
      SLUICE_ERROR(CUDA_ERROR_MPS_RPC_FAILURE, "the MPS server is gone"),
      SLUICE_ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY,
                   "a client of the MPS server has faulted, and not all its clients have ended"),
      SLUICE_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
  };
  const auto found = kTexts.find(error);
  return found == kTexts.end() ? nullptr : &found->second;
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Text* text = find(error);
  *pStr = text != nullptr ? text->name : nullptr;
  return text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Text* text = find(error);
  *pStr = text != nullptr ? text->meaning : nullptr;
  return text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
