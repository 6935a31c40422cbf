// As lib64/stubs/libcuda.so of a CUDA toolkit: there only to be linked against.
#include <cuda.h>

extern "C" __attribute__((visibility("default"))) CUresult cuInit(unsigned /*flags*/) {
  return CUDA_ERROR_STUB_LIBRARY;
}
