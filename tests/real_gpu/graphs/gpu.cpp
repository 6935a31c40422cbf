#include "tests/real_gpu/graphs/gpu.hpp"

#include <cstring>

namespace sluice::graphs {

std::string name_of(CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return name == nullptr ? std::to_string(static_cast<int>(result)) : name;
}

void must(CUresult result, const char* call, const char* file, int line) {
  if (result == CUDA_SUCCESS) return;
  const char* slash = std::strrchr(file, '/');
  throw Failure(std::string(slash == nullptr ? file : slash + 1) + ":" + std::to_string(line) +
                ": " + call + ": " + name_of(result));
}

void* look_up(const char* name, int version) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult result =
      cuGetProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  return result == CUDA_SUCCESS ? found : nullptr;
}

const Newer& newer() {
  static const Newer kInstance;
  return kInstance;
}

Stream new_stream(unsigned flags) {
  Stream stream;
  SLUICE_MUST(cuStreamCreate(stream.out(), flags));
  return stream;
}

Event new_event() {
  Event event;
  SLUICE_MUST(cuEventCreate(event.out(), CU_EVENT_DISABLE_TIMING));
  return event;
}

void enter_device() {
  CUcontext context = nullptr;
  SLUICE_MUST(cuInit(0));
  SLUICE_MUST(cuDevicePrimaryCtxRetain(&context, 0));
  SLUICE_MUST(cuCtxSetCurrent(context));
}

int attribute(CUdevice_attribute which) {
  int value = 0;
  SLUICE_MUST(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

}  // namespace sluice::graphs
