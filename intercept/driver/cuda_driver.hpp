#pragma once
// Declares every version and every per-thread form of the driver's entries under its own name.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#undef __CUDA_API_VERSION_INTERNAL

#if CUDA_VERSION < 12040
#error "Sluice needs the headers of CUDA 12.4 or later (cuStreamBeginCaptureToGraph)"
#endif
