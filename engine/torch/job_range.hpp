#pragma once
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define SLUICE_HAS_NVTX 1
#endif

namespace sluice::engine {

/// Marks the jobs for Nsight Systems. Does nothing if the build had no NVTX headers.
inline void begin_job_range() {
#ifdef SLUICE_HAS_NVTX
  nvtxRangePushA("sluice job");
#endif
}
inline void end_job_range() {
#ifdef SLUICE_HAS_NVTX
  nvtxRangePop();
#endif
}

}  // namespace sluice::engine
