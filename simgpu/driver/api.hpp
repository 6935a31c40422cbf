// cuda.h with every version of every entry declared under its exported name, per-thread forms
// included. The declarations are visible outside the library.
#pragma once

#pragma GCC visibility push(default)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#undef __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility pop
