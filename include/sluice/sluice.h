/* The C API of Sluice: a program reports where its GPU jobs begin and end.
 *
 * Header only, for C99 and C++. If the process was not started under Sluice, every function does
 * nothing and costs one load. The Python package `sluice` has the same functions
 * (docs/guide/python.md).
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

/* As sluice_job_announce(), for a job on one device only: its index in this process, as in
 * cuDeviceGet(), below 32. Clients of other devices are not held. Returns 0 also for other indices;
 * a job on a device that does not exist holds nobody. */
static inline uint64_t sluice_job_announce_on(int device, uint64_t start_ns) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_announce_on");
  return found == NULL ? 0 : ((uint64_t(*)(int, uint64_t))found)(device, start_ns);
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
 * first launch. Every lower-priority client of the devices of this process is held until the job
 * ends. Jobs of a process may overlap: the hold lasts from the first begin to the last end.
 * announced: the id from sluice_job_announce(), or 0.
 * Returns an id for sluice_job_end(), or 0 if the interposer is not preloaded. Thread-safe. Never
 * fails. */
static inline uint64_t sluice_job_begin(uint64_t announced) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_begin");
  return found == NULL ? 0 : ((uint64_t(*)(uint64_t))found)(announced);
}

/* As sluice_job_begin(), for a job on one device only, as in sluice_job_announce_on(). announced:
 * an id of that function for the same device, or 0. */
static inline uint64_t sluice_job_begin_on(int device, uint64_t announced) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_job_begin_on");
  return found == NULL ? 0 : ((uint64_t(*)(int, uint64_t))found)(device, announced);
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
 * lower-priority clients then close as late as the target allows. "step p99=25ms" is of the steps
 * of a process that is never idle (docs/reference/steps.md). Takes the place of SLUICE_TARGET and
 * of `sluice set --target`, and of any earlier call. Returns 1, or 0 if the text is not a target or
 * the interposer is not preloaded. Thread-safe. */
static inline int sluice_set_target(const char* target) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_set_target");
  return found == NULL ? 0 : ((int (*)(const char*))found)(target);
}

/* Device memory that is shared out (docs/reference/memory.md). A broker, such as `sluice serve`,
 * may limit what this process holds, and may order the process to hold less at once. From the first
 * call of one of these functions, except those of what is held and refused, the
 * process counts as one that obeys orders: launches may then be refused with
 * CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES. Make the first call when the process has a context, or the
 * call does nothing. All functions are thread-safe and never fail. In a process with several
 * devices they mean the device of the thread's context, except sluice_memory_held_on(). */

/* How an order is to be obeyed: the lowest byte of the value of sluice_order(). */
enum {
  SLUICE_ORDER_NONE = 0,
  SLUICE_ORDER_SHRINK = 1, /* at the end of the micro-batch: hold no more than the grant */
  SLUICE_ORDER_DROP = 2,   /* drop the micro-batch, hold no more than the grant, and go on */
  SLUICE_ORDER_SLEEP = 3,  /* drop it, free what can be freed, and wait for sluice_wait_resume() */
  SLUICE_ORDER_EPOCH = 4   /* the same, and go on from the start of the epoch */
};

/* The result of sluice_memory_grant() without a limit. */
#define SLUICE_NO_LIMIT UINT64_MAX

/* Returns how many bytes of device memory this process may hold. SLUICE_NO_LIMIT: no limit, or not
 * preloaded. An allocation beyond the limit returns CUDA_ERROR_OUT_OF_MEMORY at priority 0. */
static inline uint64_t sluice_memory_grant(void) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_memory_grant");
  return found == NULL ? SLUICE_NO_LIMIT : ((uint64_t(*)(void))found)();
}

/* Returns how many bytes of device memory this process holds. 0 if not preloaded. */
static inline uint64_t sluice_memory_held(void) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_memory_held");
  return found == NULL ? 0 : ((uint64_t(*)(void))found)();
}

/* The same of one device, by its index in this process. 0 also before it is used. */
static inline uint64_t sluice_memory_held_on(int device) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_memory_held_on");
  return found == NULL ? 0 : ((uint64_t(*)(int))found)(device);
}

/* Returns how many allocations of this process were refused because of the limit. 0 if not
 * preloaded. A library may report such a refusal as an error of its own. */
static inline uint64_t sluice_memory_refused(void) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_memory_refused");
  return found == NULL ? 0 : ((uint64_t(*)(void))found)();
}

/* Reports that this process needs base + slope * items bytes for micro-batches of that many items.
 * The broker plans with it, and `sluice status` shows it. */
static inline void sluice_memory_fit(uint64_t base, uint64_t slope) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_memory_fit");
  if (found != NULL) ((void (*)(uint64_t, uint64_t))found)(base, slope);
}

/* Returns the order that has to be obeyed, or 0. Its lowest byte is one of SLUICE_ORDER_..., the
 * bits above count the orders. While launches are refused, the value is not 0, even if the broker
 * has died: the micro-batch has to be dropped. */
static inline uint64_t sluice_order(void) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_order");
  return found == NULL ? 0 : ((uint64_t(*)(void))found)();
}

/* Reports that the order has been obeyed: the memory is free, and launches are accepted again.
 * order: the value of sluice_order(). Call it for a sleep before sluice_wait_resume(). */
static inline void sluice_order_done(uint64_t order) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_order_done");
  if (found != NULL) ((void (*)(uint64_t))found)(order);
}

/* Waits until there is news: an order has to be obeyed, or the process does not sleep (or not any
 * more) and the order or the grant has changed since the last news. At most timeout_ms
 * milliseconds. Returns 1 for news, and at once if there is nobody to wait for: no broker, a broker
 * that has died, or not preloaded. Returns 0 after the timeout: call it again. */
static inline int sluice_wait_resume(uint32_t timeout_ms) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_wait_resume");
  return found == NULL ? 1 : ((int (*)(uint32_t))found)(timeout_ms);
}

/* begin 1: an optimizer step begins. 0: it has ended. No launch is refused in between; an order
 * waits for the end. Nor is an allocation, but for the first one beyond the limit, so that an
 * allocator frees what it caches: give back what exceeds the limit after the step. A step that
 * begins while launches are refused is refused too, because its micro-batch has to be dropped
 * first. Steps do not nest. */
static inline void sluice_critical(int begin) {
  static void* cache = NULL;
  static int known = 0;
  void* found = sluice_lookup(&cache, &known, "sluice_v1_critical");
  if (found != NULL) ((void (*)(int))found)(begin);
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
