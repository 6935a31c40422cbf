// Stands for cudnn, cublas and the like, whose names begin as the driver's do.
#define SLUICE_LOOKALIKE(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 0; }
SLUICE_LOOKALIKE(cudnnCreate)
SLUICE_LOOKALIKE(cublasCreate_v2)
SLUICE_LOOKALIKE(cuLaunchKernel)  // a library with its own function of that name
SLUICE_LOOKALIKE(cuLaunchKernel2)
