#include "intercept/hooks/lookup.hpp"

#include <algorithm>
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

/// Whether `name` is exactly that of a hooked entry.
bool is_hooked(std::string_view name) noexcept {
  return std::any_of(hook_table().begin(), hook_table().end(),
                     [name](const HookEntry& entry) { return entry.name == name; });
}

/// Whether `name` is a driver entry that gives the GPU work, with or without a hook.
bool gives_work(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 13> kWork{"cuLaunch",
                                                   "cuLaunchGrid",
                                                   "cuLaunchGridAsync",
                                                   "cuLaunchKernel",
                                                   "cuLaunchKernelEx",
                                                   "cuLaunchCooperativeKernel",
                                                   "cuGraphLaunch",
                                                   "cuLaunchCooperativeKernelMultiDevice",
                                                   "cuLaunchKernel_ptsz",
                                                   "cuLaunchKernelEx_ptsz",
                                                   "cuLaunchCooperativeKernel_ptsz",
                                                   "cuGraphLaunch_ptsz",
                                                   "cuLaunchCooperativeKernelMultiDevice_ptsz"};
  return std::find(kWork.begin(), kWork.end(), name) != kWork.end();
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
  if (gives_work(name)) {
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
