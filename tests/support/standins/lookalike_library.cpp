// Stands for cudnn, cublas and their like: names that begin as the driver's do.
#define SLUICE_LOOKALIKE(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 0; }
SLUICE_LOOKALIKE(cudnnCreate)
SLUICE_LOOKALIKE(cublasCreate_v2)
SLUICE_LOOKALIKE(cuLaunchKernel)  // a library that brings a function of that name itself
SLUICE_LOOKALIKE(cuLaunchKernel2)
