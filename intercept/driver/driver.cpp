#include "intercept/driver/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "intercept/client/log.hpp"
#include "intercept/driver/dlsym.hpp"
#include "intercept/driver/unhooked.hpp"

namespace sluice::intercept {

constinit Driver g_driver;
constinit std::atomic<bool> g_driver_ready{false};

namespace {

struct HookEntry {
  std::string_view name;
  Kind kind;
  void* hook;
};

const std::array<HookEntry, kEntries>& hook_table() noexcept {
  static const std::array<HookEntry, kEntries> kTable{{
#define SLUICE_HOOK(name, kind) {#name, Kind::k##kind, reinterpret_cast<void*>(&::name)},
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
  }};
  return kTable;
}

void* real_of(unsigned entry) noexcept {
  switch (static_cast<Entry>(entry)) {
#define SLUICE_HOOK(name, kind) \
  case Entry::name:             \
    return reinterpret_cast<void*>(g_driver.name);
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
    case Entry::kCount:
      break;
  }
  return nullptr;
}

}  // namespace

bool resolve_driver(bool load) noexcept {
  if (g_driver_ready.load(std::memory_order_acquire)) return true;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | (load ? 0 : RTLD_NOLOAD));
  if (library == nullptr) return false;
  // Looked up without a lock of ours: dlsym takes the loader's, and a thread that holds that one
  // (in a library's constructor) may be waiting for us. Racing threads find the same.
  Driver found;
  const auto find = [library](auto& pointer, const char* name) {
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(real_dlsym(library, name));
  };
#define SLUICE_HOOK(name, kind) find(found.name, #name);
#define SLUICE_CALL(name) find(found.name, #name);
#include "intercept/driver/calls.def"
#include "intercept/driver/hooks.def"
#include "intercept/driver/optional_calls.def"
#undef SLUICE_CALL
#undef SLUICE_HOOK
  dlerror();  // an entry that this driver lacks is no error of the program's
  static constinit std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_driver_ready.load(std::memory_order_relaxed)) return true;
  g_driver = found;
  g_driver_ready.store(true, std::memory_order_release);
  return true;
}

const char* missing_call() noexcept {
#define SLUICE_CALL(name) \
  if (driver().name == nullptr) return #name;
#include "intercept/driver/calls.def"
#undef SLUICE_CALL
  return nullptr;
}

const char* kernel_name(CUfunction function) noexcept {
  const char* name = nullptr;
  const Driver& calls = driver();
  const bool found =
      (calls.cuFuncGetName != nullptr && calls.cuFuncGetName(&name, function) == CUDA_SUCCESS) ||
      // A CUkernel may stand for its function in every launch call.
      (calls.cuKernelGetName != nullptr &&
       calls.cuKernelGetName(&name, reinterpret_cast<CUkernel>(function)) == CUDA_SUCCESS);
  return found && name != nullptr ? name : "?";
}

bool is_hooked_name(std::string_view name) noexcept {
  const auto& table = hook_table();
  return std::any_of(table.begin(), table.end(),
                     [name](const HookEntry& entry) { return entry.name == name; });
}

void* substitute(std::string_view name, void* found) noexcept {
  // Not loaded: then `found` is no driver entry. Never load the driver for somebody who asks.
  if (found == nullptr || !resolve_driver(false)) return found;
  for (unsigned entry = 0; entry < kEntries; ++entry) {
    const HookEntry& hooked = hook_table()[entry];
    if (hooked.hook == found) return found;
    if (real_of(entry) != found) continue;
    Line(Level::kDebug) << "asked for " << name << ", got the hook of " << hooked.name;
    return hooked.hook;
  }
  note_if_unhooked_work(name);
  return found;
}

}  // namespace sluice::intercept
