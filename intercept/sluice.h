/* Sluice's C API: tell the GPU-sharing layer where a job begins and ends.
 *
 * Header only, C99 and C++. When the process was not started under Sluice every function is a
 * no-op that costs one load. From Python:
 *     sluice = ctypes.CDLL(None); sluice.sluice_v1_job_begin.restype = ctypes.c_uint64
 * (the sluice_v1_* symbols exist only in a process that Sluice is preloaded into).
 *
 * A program need not call any of this: without it, a job begins with the first launch or
 * host-to-device copy when the process is idle, and ends when the GPU work is seen to be done.
 * The first call of sluice_job_begin() switches that detection off for the process.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interposer's entry `name`, or NULL when it is not preloaded. The answer cannot change while
 * the process lives, so it is looked up once; racing first calls find the same. */
static inline void* sluice_lookup(void** cache, int* known, const char* name) {
  if (!__atomic_load_n(known, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(cache, dlsym(RTLD_DEFAULT, name), __ATOMIC_RELAXED);
    __atomic_store_n(known, 1, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(cache, __ATOMIC_RELAXED);
}

/* Begins a job: one unit of work, an inference or a training step, from before its first launch.
 * From here until the end every lower-priority client of the device is held. Jobs of a process
 * may overlap: the hold lasts from the first begin to the last end.
 * announced: 0; an id from a later version's announcement.
 * Returns an id for sluice_job_end(), or 0 when not preloaded. Thread-safe. Never fails. */
static inline uint64_t sluice_job_begin(uint64_t announced) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_begin");
  return found == NULL ? 0 : ((uint64_t(*)(uint64_t))found)(announced);
}

/* Ends a job. Call it when the job's GPU work has finished (after the synchronise), or the clients
 * held for it start while it still runs. job: what sluice_job_begin() returned; 0 is ignored, and
 * so is a second end of one id. Thread-safe, from any thread. */
static inline void sluice_job_end(uint64_t job) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_end");
  if (found != NULL) ((void (*)(uint64_t))found)(job);
}

/* 1 if the process has a slot on the board of its session and obeys its gate, else 0. */
static inline int sluice_attached(void) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_attached");
  return found == NULL ? 0 : ((int (*)(void))found)();
}

#ifdef __cplusplus
}
#endif

#endif /* SLUICE_H */
