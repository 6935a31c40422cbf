// The interface between the interposer and libsluice_cupti.so. Plain C: the collector loads CUPTI
// into a traced process, and the interposer knows nothing of CUPTI.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Called by a CUPTI thread for each kernel that has ended. Times: CLOCK_MONOTONIC ns. correlation:
// the argument of sluice_collector_begin, 0 if the launch was not seen. stream: the argument of
// sluice_collector_end, or CUPTI's own number if no kernel was launched into the stream. node: the
// node of the launched graph, or 0. name: mangled; valid until the call returns.
typedef void (*SluiceExecuted)(uint64_t begin_ns, uint64_t end_ns, uint64_t correlation,
                               uint64_t stream, uint64_t node, const char* name);

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
