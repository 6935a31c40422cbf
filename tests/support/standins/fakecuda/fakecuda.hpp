#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "intercept/cuda_driver.hpp"

/// A libcuda.so.1 for tests of the interposer. It exports every entry of hooks.def and calls.def,
/// records each call with its arguments, and keeps just enough state (streams, events, captures,
/// graphs, contexts) to answer as the driver does and to refuse what the driver refuses: unsafe
/// calls during a capture, a second registration of a page, waits in a device-launchable graph.
/// No time passes in it: work is done at once, or, after pause(), when the test says so.
namespace fake {

/// One entry of hooks.def, calls.def or extras.def.
enum class Id : unsigned {
#define SLUICE_HOOK(name, kind) name,
#define SLUICE_CALL(name) name,
#define SLUICE_FAKE_EXTRA(name) name,
#include "intercept/calls.def"
#include "intercept/hooks.def"
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
#include "intercept/calls.def"
#include "intercept/hooks.def"
#include "tests/support/standins/fakecuda/extras.def"
#undef SLUICE_HOOK
#undef SLUICE_CALL
#undef SLUICE_FAKE_EXTRA
};

/// What cuModuleGetFunction finds.
inline constexpr std::uintptr_t kLoadedFunction = 0x10ad;

#define SLUICE_FAKE_API __attribute__((visibility("default")))

/// One call that reached the driver. Arguments as words, in order.
struct Call {
  Id id;
  int argument_count;
  std::array<std::uint64_t, 12> arguments;

  [[nodiscard]] std::string_view name() const { return kNames[static_cast<std::size_t>(id)]; }
};

/// Everything since the last clear(). Recording is on unless a benchmark turned it off.
SLUICE_FAKE_API std::vector<Call> calls();
SLUICE_FAKE_API std::size_t count(Id id);
SLUICE_FAKE_API void clear();
SLUICE_FAKE_API void record(bool on);

/// From now on `id` answers `result` without doing anything else; CUDA_SUCCESS ends that.
SLUICE_FAKE_API void answer(Id id, CUresult result);

/// From now on `id` blocks its callers, until unstall(); as a real driver does with a stream whose
/// queue is full. Threads that it blocks now.
SLUICE_FAKE_API void stall(Id id);
/// The same when it has done its work: the caller does not know yet, and other threads do.
SLUICE_FAKE_API void stall_return(Id id);
SLUICE_FAKE_API void unstall();
SLUICE_FAKE_API int stalled_threads();

/// What cuGetProcAddress of this driver finds, asked past every hook.
SLUICE_FAKE_API CUresult find_entry(const char* symbol, void** found, int version,
                                    cuuint64_t flags);

/// What the device can do: cuDeviceGetAttribute of 64-bit stream waits.
SLUICE_FAKE_API void set_stream_waits(bool supported);

/// What lies between any two events, in ms: what the launch between them is said to take.
SLUICE_FAKE_API void set_elapsed(float ms);

/// After pause() work stays outstanding until finish() or finish_all(); resume() ends that.
SLUICE_FAKE_API void pause();
SLUICE_FAKE_API void resume();
SLUICE_FAKE_API void finish(CUstream stream, std::uint64_t operations);
SLUICE_FAKE_API void finish_all();
SLUICE_FAKE_API std::uint64_t outstanding(CUstream stream);

/// The nodes of a graph in the order of their making: K kernel, G graph, W wait, C copy, E event.
SLUICE_FAKE_API std::string nodes(CUgraph graph);
SLUICE_FAKE_API std::string nodes(CUgraphExec exec);
/// Whether every node but the first depends on the one before it, and on nothing else.
SLUICE_FAKE_API bool is_chain(CUgraph graph);
SLUICE_FAKE_API bool is_chain(CUgraphExec exec);

/// Events that exist now.
SLUICE_FAKE_API std::size_t living_events();
/// Calls that named an event that had been destroyed: a real driver reads freed memory.
SLUICE_FAKE_API std::size_t uses_of_dead_events();
/// Whether the page of `address` is registered.
SLUICE_FAKE_API bool registered();

}  // namespace fake
