#pragma once
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "intercept/driver/entries.hpp"

/// A libcuda.so.1 for tests of the interposer. It exports every entry of hooks.def and calls.def
/// and records each call with its arguments. Its state (streams, events, captures, graphs,
/// contexts) is enough to answer as the driver does, and to refuse what the driver refuses: unsafe
/// calls during a capture, a second registration of a page, waits in a device-launchable graph. No
/// time passes in it: work ends at once or, after pause(), when the test says so.
namespace fake {

/// One entry of hooks.def, calls.def or extras.def.
enum class Id : unsigned {
#define SLUICE_HOOK(name, kind) name,
#define SLUICE_CALL(name) name,
#define SLUICE_FAKE_EXTRA(name) name,
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#include "tests/support/standins/fakecuda/extras.def"
#undef SLUICE_HOOK
#undef SLUICE_CALL
#undef SLUICE_FAKE_EXTRA
  kCount,
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(Id::kCount)> kNames{
#define SLUICE_HOOK(name, kind) #name,
#define SLUICE_CALL(name) #name,
#define SLUICE_FAKE_EXTRA(name) #name,
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#include "tests/support/standins/fakecuda/extras.def"
#undef SLUICE_HOOK
#undef SLUICE_CALL
#undef SLUICE_FAKE_EXTRA
};

/// What every device has.
inline constexpr std::size_t kTotalMemory = std::size_t{80} << 30U;
inline constexpr std::size_t kFreeMemory = std::size_t{70} << 30U;

/// The function that cuModuleGetFunction finds.
inline constexpr std::uintptr_t kLoadedFunction = 0x10ad;

#define SLUICE_FAKE_API __attribute__((visibility("default")))

/// An entry of a driver to come, which no table of the interposer can have: begins a capture.
/// Programs look it up.
inline constexpr const char* kFutureBegin = "cuStreamBeginFutureCapture";
using FutureBegin = CUresult (*)(CUstream stream, CUstreamCaptureMode mode);
/// Another one: launches a kernel. Programs look it up, or link it.
inline constexpr const char* kFutureLaunch = "cuLaunchFutureKernel";

/// One call that reached the driver, with its arguments as words in order.
struct Call {
  Id id;
  int argument_count;
  std::array<std::uint64_t, 12> arguments;
  pid_t thread;  // which made the call

  [[nodiscard]] std::string_view name() const { return kNames[static_cast<std::size_t>(id)]; }
};

/// All calls since the last clear().
SLUICE_FAKE_API std::vector<Call> calls();
SLUICE_FAKE_API std::size_t count(Id id);
SLUICE_FAKE_API void clear();

/// From now on `id` returns `result` and does nothing else. CUDA_SUCCESS ends that.
SLUICE_FAKE_API void answer(Id id, CUresult result);
/// The same with CUDA_ERROR_UNKNOWN, after `good` more calls that work.
SLUICE_FAKE_API void fail_after(Id id, int good);

/// From now on `id` blocks its callers until unstall(), as a real driver does when the queue of the
/// stream is full.
SLUICE_FAKE_API void stall(Id id);
/// The same after `id` has done its work: other threads see the effect before the caller knows.
SLUICE_FAKE_API void stall_return(Id id);
/// The same for every call that names the stream. There may be several.
SLUICE_FAKE_API void stall_stream(CUstream stream);
SLUICE_FAKE_API void unstall();
/// Threads that are blocked now.
SLUICE_FAKE_API int stalled_threads();

/// What cuGetProcAddress of this driver finds without any hook in between.
SLUICE_FAKE_API CUresult find_entry(const char* symbol, void** found, int version,
                                    cuuint64_t flags);

/// Whether cuDeviceGetAttribute reports 64-bit stream waits.
SLUICE_FAKE_API void set_stream_waits(bool supported);

/// The time between any two events, in ms, and so the apparent duration of a launch between them.
SLUICE_FAKE_API void set_elapsed(float ms);
/// The same, but what was said of another kernel still holds for that one.
SLUICE_FAKE_API void set_elapsed_of(CUfunction function, float ms);

/// After pause(), work stays outstanding until finish() or finish_all(). resume() ends that.
SLUICE_FAKE_API void pause();
SLUICE_FAKE_API void resume();
SLUICE_FAKE_API void finish(CUstream stream, std::uint64_t operations);
SLUICE_FAKE_API void finish_all();
SLUICE_FAKE_API std::uint64_t outstanding(CUstream stream);

/// The pool of a device that serves its streams. Whether pools keep what is freed until they are
/// trimmed, and what that of the device has taken.
inline CUmemoryPool default_pool(CUdevice device) {
  return reinterpret_cast<CUmemoryPool>(std::uintptr_t{0x9000} +
                                        static_cast<std::uintptr_t>(device));
}
SLUICE_FAKE_API void keep_in_pools(bool keep);
SLUICE_FAKE_API std::uint64_t reserved(CUdevice device);

/// The nodes of a graph in the order of creation: K kernel, G graph, W wait, C copy or child graph,
/// E event, I conditional, A and F allocation and release of memory.
SLUICE_FAKE_API std::string nodes(CUgraph graph);
/// The same in the order of their edges (and of creation where those allow several), with what is
/// inside a child graph or a conditional node in parentheses.
SLUICE_FAKE_API std::string run_order(CUgraph graph);
SLUICE_FAKE_API std::string run_order(CUgraphExec exec);
/// Where the waits of the executable read, in the order of creation of the nodes behind them; 0 for
/// a node without a wait in front.
SLUICE_FAKE_API std::vector<std::uint64_t> gates(CUgraphExec exec);
/// The values that waits of the executable look for with "at least".
SLUICE_FAKE_API std::vector<std::uint64_t> slack_waits(CUgraphExec exec);
/// All edges, those that lead to a node in their order.
SLUICE_FAKE_API std::vector<std::pair<CUgraphNode, CUgraphNode>> edges(CUgraph graph);
/// Whether every node but the first depends on exactly the node before it.
SLUICE_FAKE_API bool is_chain(CUgraph graph);

/// Events that exist now.
SLUICE_FAKE_API std::size_t living_events();
/// Calls that named a destroyed event. A real driver reads freed memory then.
SLUICE_FAKE_API std::size_t uses_of_dead_events();
/// Whether the page of `address` is registered.
SLUICE_FAKE_API bool registered();

}  // namespace fake

extern "C" SLUICE_FAKE_API CUresult cuLaunchFutureKernel(CUfunction function, CUstream stream);
