/* The C API of Sluice: a program reports where its GPU jobs begin and end.
 *
 * Header only, for C99 and C++. If the process was not started under Sluice, every function does
 * nothing and costs one load. From Python:
 *     begin = ctypes.CDLL(None).sluice_v1_job_begin  # AttributeError if Sluice is not preloaded
 *     begin.restype, begin.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
 * The other functions need the same two settings: times and ids have 64 bits, and ctypes assumes
 * int.
 *
 * A program need not use this API. Without it, a job begins with the first launch or host-to-device
 * copy while the process is idle, and ends when the process's GPU work has finished. The first call
 * of sluice_job_begin() switches that detection off for the process.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interposer's function `name`, or NULL if the interposer is not preloaded. The result cannot
 * change while the process lives, so it is looked up once. Concurrent first calls find the same. */
static inline void* sluice_lookup(void** cache, int* known, const char* name) {
  if (!__atomic_load_n(known, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(cache, dlsym(RTLD_DEFAULT, name), __ATOMIC_RELAXED);
    __atomic_store_n(known, 1, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(cache, __ATOMIC_RELAXED);
}

/* Announces a job that is expected to begin at start_ns (CLOCK_MONOTONIC, nanoseconds). A server
 * knows of a request while it still decodes the request, and can announce the job then. Until
 * start_ns, lower-priority clients of the device start only launches that end in time. Shortly
 * before start_ns they are held, and the GPU switches to this process.
 * Announce a job as soon as it is known; a few milliseconds in advance are enough. An announcement
 * lapses 10 ms after start_ns.
 * Returns an id for sluice_job_begin() or sluice_job_cancel(). Returns 0 if the interposer is not
 * preloaded, or if 64 announced jobs have not begun yet. Thread-safe. Never fails. */
static inline uint64_t sluice_job_announce(uint64_t start_ns) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_announce");
  return found == NULL ? 0 : ((uint64_t(*)(uint64_t))found)(start_ns);
}

/* Cancels an announced job that will not begin. announced: the id from sluice_job_announce(). 0 and
 * the ids of lapsed jobs and of jobs that have begun are ignored. Thread-safe. */
static inline void sluice_job_cancel(uint64_t announced) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_cancel");
  if (found != NULL) ((void (*)(uint64_t))found)(announced);
}

/* Begins a job: one unit of work, such as an inference or a training step. Call it before the job's
 * first launch. Every lower-priority client of the device is held until the job ends. Jobs of a
 * process may overlap: the hold lasts from the first begin to the last end.
 * announced: the id from sluice_job_announce(), or 0.
 * Returns an id for sluice_job_end(), or 0 if the interposer is not preloaded. Thread-safe. Never
 * fails. */
static inline uint64_t sluice_job_begin(uint64_t announced) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_begin");
  return found == NULL ? 0 : ((uint64_t(*)(uint64_t))found)(announced);
}

/* Ends a job. Call it after the job's GPU work has finished (after the synchronise): otherwise held
 * clients start while that work still runs. job: the id from sluice_job_begin(). 0 and a second end
 * of the same id are ignored. Thread-safe; any thread may end a job. */
static inline void sluice_job_end(uint64_t job) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_end");
  if (found != NULL) ((void (*)(uint64_t))found)(job);
}

/* Says what latency is good enough for the jobs of this process: "p99=50ms", or "p99=1.2x" (times
 * the time alone), with p50 to p99.9 and us, ms, s or x; "none" takes the target away. The gates of
 * lower-priority clients then close as late as the target allows. Takes the place of SLUICE_TARGET
 * and of `sluice set --target`, and of any earlier call.
 * Returns 1, or 0 if the text is not a target or the interposer is not preloaded. Thread-safe. */
static inline int sluice_set_target(const char* target) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_set_target");
  return found == NULL ? 0 : ((int (*)(const char*))found)(target);
}

/* Returns 1 if the process has a slot on the board of its session and obeys its gate, else 0. */
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
