#include "intercept/hooks/lookup.hpp"

#include <dlfcn.h>

#include <array>

#include "intercept/client/interposer.hpp"
#include "intercept/driver/dlsym.hpp"
#include "intercept/driver/driver.hpp"
#include "intercept/driver/log.hpp"
#include "intercept/pacing/captures.hpp"

namespace sluice::intercept {
namespace {

struct HookEntry {
  std::string_view name;
  void* hook;
};

const std::array<HookEntry, kEntries>& hook_table() noexcept {
  static const std::array<HookEntry, kEntries> kTable{{
#define SLUICE_HOOK(name, kind) {#name, reinterpret_cast<void*>(&::name)},
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
  }};
  return kTable;
}

void* real_of(unsigned entry) noexcept {
  switch (static_cast<Entry>(entry)) {
#define SLUICE_HOOK(name, kind) \
  case Entry::name:             \
    return reinterpret_cast<void*>(g_process.driver.name);
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
    case Entry::kCount:
      break;
  }
  return nullptr;
}

/// Whether `address` is in the library that has the driver's entries. Other libraries may have
/// functions whose names begin as those of launches do.
bool is_of_driver(const void* address) noexcept {
  Dl_info about{};
  Dl_info driver{};
  return dladdr(address, &about) != 0 &&
         dladdr(reinterpret_cast<const void*>(g_process.driver.cuGetProcAddress), &driver) != 0 &&
         about.dli_fbase == driver.dli_fbase;
}

/// Whether `name` is that of a driver entry that begins a capture, also of one that this cuda.h
/// does not have.
bool begins_capture(std::string_view name) noexcept {
  return name.starts_with("cuStreamBegin") && name.find("apture") != std::string_view::npos;
}

}  // namespace

void* substitute(std::string_view name, void* found) noexcept {
  // If the driver is not loaded, `found` is no driver entry. A lookup must not load the driver.
  if (found == nullptr || !resolve_driver(false)) return found;
  for (unsigned entry = 0; entry < kEntries; ++entry) {
    const HookEntry& hooked = hook_table()[entry];
    if (hooked.hook == found) return found;
    if (real_of(entry) != found) continue;
    Line(Level::kDebug) << "asked for " << name << ", got the hook of " << hooked.name;
    return hooked.hook;
  }
  if (begins_capture(name)) {
    Line(Level::kDebug) << name << " begins captures and has no hook: launches ask the driver";
    captures_are_unseen();
  }
  if (gives_work(name) && (is_hooked(name) || is_of_driver(found))) {
    g_process.unhooked.note(name);
    if (Interposer* const self = Interposer::existing()) self->show_unhooked();
  }
  return found;
}

}  // namespace sluice::intercept

extern "C" __attribute__((visibility("hidden"))) void* sluice_dlsym_of_handle(void* handle,
                                                                              const char* name) {
  using namespace sluice::intercept;
  void* found = real_dlsym(handle, name);
  // Exact names only: the symbols of cuDNN, cuBLAS and cuRAND begin with "cu" too.
  if (found == nullptr || name[0] != 'c' || name[1] != 'u') return found;
  const bool matters = is_hooked(name) || gives_work(name) || begins_capture(name);
  return matters ? substitute(name, found) : found;
}
