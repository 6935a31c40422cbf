// The exported entries. Each jumps through a table to Stub::call, whose argument types come from
// the entry's declaration in cuda.h. So a new line in hooks.def needs no new code here.
#include <unistd.h>

#include <type_traits>

#include "intercept/driver/machine.hpp"
#include "lookup.hpp"

namespace fake {
namespace {

constexpr std::string_view without_suffix(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

constexpr std::string_view plain_name(std::string_view name) {
  return without_suffix(without_suffix(name, "_ptsz"), "_ptds");
}

constexpr Id find_id(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Id>(i);
  }
  return Id::kCount;
}

constexpr bool is_per_thread(Id id) {
  const std::string_view name = kNames[static_cast<std::size_t>(id)];
  return plain_name(name) != name;
}

/// The form that has the behave() of this entry.
constexpr Id plain_of(Id id) {
  const Id plain = find_id(plain_name(kNames[static_cast<std::size_t>(id)]));
  return plain == Id::kCount ? id : plain;
}

template <class Argument>
std::uint64_t word(Argument argument) {
  if constexpr (std::is_pointer_v<Argument>) {
    return reinterpret_cast<std::uint64_t>(argument);
  } else if constexpr (std::is_class_v<Argument>) {
    return 0;
  } else {
    return static_cast<std::uint64_t>(argument);
  }
}

/// Stream 0 of a per-thread entry is the thread's own stream.
template <bool per_thread, class Argument>
Argument named(Argument argument) {
  if constexpr (per_thread && std::is_same_v<Argument, CUstream>) {
    return argument == nullptr ? CU_STREAM_PER_THREAD : argument;
  } else {
    return argument;
  }
}

template <Id id, class Function>
struct Stub;

template <Id id, class... Args>
struct Stub<id, CUresult (*)(Args...)> {
  static CUresult call(Args... args) {
    std::unique_lock lock(state().mutex);
    const Call call{id, static_cast<int>(sizeof...(Args)), {word(args)...}, gettid()};
    state().calls.push_back(call);
    state().stand_at(lock, call);
    const auto forced = state().answers.find(id);
    if (forced != state().answers.end() && state().good_calls[id]-- <= 0) return forced->second;
    const CUresult result = behave(Tag<plain_of(id)>{}, lock, named<is_per_thread(id)>(args)...);
    state().stand_at_return(lock, id);
    return result;
  }
};

}  // namespace
}  // namespace fake

#define SLUICE_FAKE_EXPORT(name)                                                   \
  extern "C" {                                                                     \
  __attribute__((visibility("hidden"), used)) decltype(&::name) fake_slot_##name = \
      &fake::Stub<fake::Id::name, decltype(&::name)>::call;                        \
  }                                                                                \
  SLUICE_EXPORT_JUMP(#name, "fake_slot_" #name)
#define SLUICE_HOOK(name, kind) SLUICE_FAKE_EXPORT(name)
#define SLUICE_CALL(name) SLUICE_FAKE_EXPORT(name)
#define SLUICE_FAKE_EXTRA(name) SLUICE_FAKE_EXPORT(name)
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#include "tests/support/standins/fakecuda/extras.def"

extern "C" CUresult cuStreamBeginFutureCapture(CUstream stream, CUstreamCaptureMode mode) {
  const std::lock_guard lock(fake::state().mutex);
  return fake::begin_capture(stream, nullptr, mode);
}

extern "C" CUresult cuLaunchFutureKernel(CUfunction /*function*/, CUstream stream) {
  const std::lock_guard lock(fake::state().mutex);
  return fake::state().submit(stream, 'K');
}
