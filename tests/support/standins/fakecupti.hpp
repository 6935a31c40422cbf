#pragma once
#include <cstdint>

/// How a test drives the libcupti.so.13 that stands in for NVIDIA's.
struct FakeCupti {
  /// Behaves as on a machine that does not allow profiling: no kind of record can be enabled.
  void (*refuse)(bool refuse);
  /// Calls CUPTI's callbacks for a launch by the calling thread. Returns the number of the call.
  std::uint32_t (*call)();
  /// Reports the end of a kernel of that call, with a grid of 6 x 5 x 4 blocks of 32 x 3 x 2
  /// threads, 40 registers, and 1000 + 24 bytes of shared memory. `node` is 0 for a kernel outside
  /// of graphs.
  void (*kernel)(std::uint32_t call, std::uint64_t begin_ns, std::uint64_t end_ns,
                 std::uint32_t stream, std::uint64_t node, const char* name);
  /// From true to false, a flush does not return, as on a busy driver.
  void (*block_flushes)(bool block);
  /// From true to false, no buffer is handed over, as while the kernels in them wait.
  void (*hold_buffers)(bool hold);
  /// The time of the registered clock.
  std::uint64_t (*now)();
  std::uint64_t (*dropped)();  ///< Records for which no buffer was given.
  int (*subscribers)();
};

extern "C" const FakeCupti* fake_cupti();
