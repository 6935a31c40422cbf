// The interface of libsluice_cupti.so, which the interposer and `sluice opbench` load. Plain C: the
// collector loads CUPTI into the process, and its users know nothing of CUPTI.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A kernel that has ended. Times: CLOCK_MONOTONIC ns.
typedef struct SluiceKernel {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint64_t correlation;  // the argument of sluice_collector_begin; 0 if the launch was not seen
  uint64_t stream;   // the argument of sluice_collector_end; CUPTI's own number if no kernel was
                     // launched into the stream
  uint64_t node;     // the node of the launched graph, or 0
  const char* name;  // mangled; valid until the call returns
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t registers;     // of a thread
  uint32_t shared_bytes;  // of a block, static and dynamic
} SluiceKernel;

// Called by a CUPTI thread for each kernel that has ended.
typedef void (*SluiceExecuted)(const SluiceKernel* kernel);

// Begins to collect. Returns null, or the reason why it cannot, as text that is never freed.
const char* sluice_collector_start(SluiceExecuted executed);

// Bracket a launch, in its thread. Its kernels are reported with `correlation` and `stream`.
void sluice_collector_begin(uint64_t correlation);
void sluice_collector_end(uint64_t stream);

// Reports the kernels that have ended. Called repeatedly by one thread.
void sluice_collector_flush(void);

#ifdef __cplusplus
}
#endif
