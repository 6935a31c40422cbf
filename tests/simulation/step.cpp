// What the compiler calls for each access to memory of code that is built with -fsanitize=thread.
// Here it is no race detector: each atomic access is a step, before which another thread of the
// simulation may run.
#include <cstdint>

#include "tests/simulation/fibers.hpp"

using sluice::simulation::step;

// The orders do not matter, because there is one real thread. The types are those of the compiler's
// ABI.
#define ATOMICS(bits)                                                                           \
  using u##bits = std::uint##bits##_t;                                                          \
  u##bits __tsan_atomic##bits##_load(const volatile u##bits* at, int) {                         \
    step();                                                                                     \
    return *at;                                                                                 \
  }                                                                                             \
  void __tsan_atomic##bits##_store(volatile u##bits* at, u##bits value, int) {                  \
    step();                                                                                     \
    *at = value;                                                                                \
  }                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile u##bits* at, u##bits* expected,    \
                                                    u##bits desired, int, int) {                \
    step();                                                                                     \
    if (*at == *expected) {                                                                     \
      *at = desired;                                                                            \
      return 1;                                                                                 \
    }                                                                                           \
    *expected = *at;                                                                            \
    return 0;                                                                                   \
  }                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile u##bits* at, u##bits* expected,      \
                                                  u##bits desired, int order, int failed) {     \
    return __tsan_atomic##bits##_compare_exchange_strong(at, expected, desired, order, failed); \
  }                                                                                             \
  CHANGES(bits, exchange, value)                                                                \
  CHANGES(bits, fetch_add, static_cast<u##bits>(before + value))                                \
  CHANGES(bits, fetch_sub, static_cast<u##bits>(before - value))                                \
  CHANGES(bits, fetch_and, static_cast<u##bits>(before & value))                                \
  CHANGES(bits, fetch_or, static_cast<u##bits>(before | value))                                 \
  CHANGES(bits, fetch_xor, static_cast<u##bits>(before ^ value))
#define CHANGES(bits, name, after)                                                 \
  u##bits __tsan_atomic##bits##_##name(volatile u##bits* at, u##bits value, int) { \
    step();                                                                        \
    const u##bits before = *at;                                                    \
    *at = after;                                                                   \
    return before;                                                                 \
  }
#define PLAIN(name) \
  void __tsan_##name(void*) {}

extern "C" {
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
PLAIN(read1)
PLAIN(read2)
PLAIN(read4)
PLAIN(read8)
PLAIN(read16)
PLAIN(write1)
PLAIN(write2)
PLAIN(write4)
PLAIN(write8)
PLAIN(write16)
PLAIN(unaligned_read2)
PLAIN(unaligned_read4)
PLAIN(unaligned_read8)
PLAIN(unaligned_read16)
PLAIN(unaligned_write2)
PLAIN(unaligned_write4)
PLAIN(unaligned_write8)
PLAIN(unaligned_write16)
PLAIN(vptr_read)
PLAIN(func_entry)
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void*, unsigned long) {}
void __tsan_write_range(void*, unsigned long) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
