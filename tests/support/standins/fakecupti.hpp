#pragma once
#include <cstdint>

/// How a test drives the recorded libcupti.so.13 that stands in for NVIDIA's.
struct FakeCupti {
  /// Behaves as on a machine that does not allow it: no kind of record can be enabled.
  void (*refuse)(bool refuse);
  /// A launch in the driver by the calling thread: CUPTI's callbacks for it. Returns the call's
  /// number.
  std::uint32_t (*call)();
  /// A kernel of that call has ended; node 0 for one that is in no graph.
  void (*kernel)(std::uint32_t call, std::uint64_t begin_ns, std::uint64_t end_ns,
                 std::uint32_t stream, std::uint64_t node, const char* name);
  /// Until false again, a flush does not come back, as on a driver that is busy.
  void (*block_flushes)(bool block);
  /// Until false again, no buffer is handed over, as while the kernels in them wait.
  void (*hold_buffers)(bool hold);
  /// The clock that was registered.
  std::uint64_t (*now)();
  std::uint64_t (*dropped)();  ///< Records for which no buffer was given.
  int (*subscribers)();
};

extern "C" const FakeCupti* fake_cupti();
