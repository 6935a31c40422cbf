// Another preloaded library, which wraps malloc, dlsym'ed functions and cuLaunchKernel by
// RTLD_NEXT.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static unsigned long launches, allocations;
unsigned long hostile_shim_launches(void) { return launches; }

typedef int (*launch_fn)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void*, void**, void**);
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** params, void** extra) {
  static launch_fn next;
  if (next == NULL) next = (launch_fn)dlsym(RTLD_NEXT, "cuLaunchKernel");
  __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
  return next(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
void* calloc(size_t n, size_t size);
void* malloc(size_t size) {
  static void* (*next)(size_t);
  static __thread int inside;
  if (next == NULL) {
    if (inside) return calloc(1, size);
    inside = 1;
    next = (void* (*)(size_t))dlsym(RTLD_NEXT, "malloc");
    inside = 0;
  }
  __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
  return next(size);
}
