#include "intercept/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "intercept/dlsym.hpp"
#include "intercept/log.hpp"
#include "intercept/unhooked.hpp"

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
  static const std::array<HookEntry, kEntries> table{{
#define SLUICE_HOOK(name, kind) {#name, Kind::kind, reinterpret_cast<void*>(&::name)},
#include "intercept/hooks.def"
#undef SLUICE_HOOK
  }};
  return table;
}

void* real_of(unsigned entry) noexcept {
  switch (static_cast<Entry>(entry)) {
#define SLUICE_HOOK(name, kind) \
  case Entry::name:             \
    return reinterpret_cast<void*>(g_driver.name);
#include "intercept/hooks.def"
#undef SLUICE_HOOK
    case Entry::kCount:
      break;
  }
  return nullptr;
}

}  // namespace

bool resolve_driver(bool load) noexcept {
  static constinit std::mutex mutex;
  if (g_driver_ready.load(std::memory_order_acquire)) return true;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | (load ? 0 : RTLD_NOLOAD));
  if (library == nullptr) return false;
  const std::lock_guard lock(mutex);
  const auto find = [library](auto& pointer, const char* name) {
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(real_dlsym(library, name));
  };
#define SLUICE_HOOK(name, kind) find(g_driver.name, #name);
#define SLUICE_CALL(name) find(g_driver.name, #name);
#include "intercept/calls.def"
#include "intercept/hooks.def"
#undef SLUICE_CALL
#undef SLUICE_HOOK
  g_driver_ready.store(true, std::memory_order_release);
  dlerror();  // an entry that this driver lacks is no error of the program's
  return true;
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
