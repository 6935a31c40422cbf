// What libsluice_cupti.so offers the interposer, and gets from it. Plain C: the collector brings
// CUPTI into a traced process, and the interposer knows nothing of CUPTI.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Called from a thread of CUPTI's for each kernel that has ended. Times: CLOCK_MONOTONIC ns.
// correlation: as given to sluice_collector_begin, 0 if the launch was not seen. stream: as given
// to sluice_collector_end, or a number of CUPTI's own where no kernel was launched into it. node:
// of the graph that was launched, or 0. name: mangled; lives until the call returns.
typedef void (*SluiceExecuted)(uint64_t begin_ns, uint64_t end_ns, uint64_t correlation,
                               uint64_t stream, uint64_t node, const char* name);

// Begins to collect. Returns null, or why it cannot, as text that lives for ever.
const char* sluice_collector_start(SluiceExecuted executed);

// Around a launch, in its thread: the kernels it starts are reported under `correlation`, on
// `stream`.
void sluice_collector_begin(uint64_t correlation);
void sluice_collector_end(uint64_t stream);

// Reports what has ended. Called again and again by one thread.
void sluice_collector_flush(void);

#ifdef __cplusplus
}
#endif
