/* Sluice's C API: tell the GPU-sharing layer where a job begins and ends.
 *
 * Header only, C99 and C++. When the process was not started under Sluice every function is a
 * no-op that costs one load. From Python:
 *     begin = ctypes.CDLL(None).sluice_v1_job_begin  # AttributeError where Sluice is not preloaded
 *     begin.restype, begin.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
 * and so on: times and ids have 64 bits, where ctypes takes int by itself.
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

/* Announces a job that is expected to begin at start_ns (CLOCK_MONOTONIC, nanoseconds): a server
 * knows of a request while it decodes it. Until then lower-priority clients of the device start
 * only what ends in time, shortly before it they are held, and the GPU switches to this process.
 * Announce as soon as the job is known; a few milliseconds ahead are enough. An announcement
 * lapses 10 ms after start_ns.
 * Returns an id for sluice_job_begin() or sluice_job_cancel(); 0 when not preloaded, or when 64
 * announced jobs have not begun yet.
 * Thread-safe. Never fails. */
static inline uint64_t sluice_job_announce(uint64_t start_ns) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_announce");
  return found == NULL ? 0 : ((uint64_t(*)(uint64_t))found)(start_ns);
}

/* The announced job will not come. announced: what sluice_job_announce() returned; 0, a lapsed one
 * and one that has begun are ignored. Thread-safe. */
static inline void sluice_job_cancel(uint64_t announced) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_cancel");
  if (found != NULL) ((void (*)(uint64_t))found)(announced);
}

/* Begins a job: one unit of work, an inference or a training step, from before its first launch.
 * From here until the end every lower-priority client of the device is held. Jobs of a process
 * may overlap: the hold lasts from the first begin to the last end.
 * announced: what sluice_job_announce() returned, or 0.
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
