// libcontext_watch.so, preloaded: does a preload see every change of a thread's current context?
// Counts the calls that change the context, and compares cuCtxGetCurrent at each launch with its
// answer at the thread's last seen change or launch. Sees what programs look up with dlsym or
// cuGetProcAddress, and not what they link to. Prints one line per process that launched work.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#undef cuGetProcAddress

namespace {

using Dlsym = void* (*)(void*, const char*);
using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcAddressV2 = CUresult (*)(const char*, void**, int, cuuint64_t,
                                      CUdriverProcAddressQueryResult*);

Dlsym real_dlsym() {
  static const auto kReal = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return kReal;
}

/// The driver's own entry; null while the driver is not loaded.
template <class Function>
Function driver(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(real_dlsym()(library, name));
}

struct Seen {
  CUcontext context;
  bool any;
};
thread_local Seen t_seen{};
std::atomic<unsigned> g_launches{0};
std::atomic<unsigned> g_changes{0};
std::atomic<unsigned> g_first_unseen{0};
std::atomic<unsigned> g_mismatches{0};

CUcontext current() {
  static const auto kGet = driver<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
  CUcontext context = nullptr;
  if (kGet != nullptr) kGet(&context);
  return context;
}

void on_change() {
  ++g_changes;
  t_seen = {current(), true};
}

void on_launch() {
  ++g_launches;
  const CUcontext now = current();
  if (!t_seen.any) {
    // The context became current without a call that the preload saw.
    ++g_first_unseen;
  } else if (now != t_seen.context) {
    ++g_mismatches;
  }
  t_seen = {now, true};
}

struct Name {
  const char* name;
  bool launch;
};
constexpr std::array kNames{Name{"cuCtxCreate", false},
                            Name{"cuCtxCreate_v2", false},
                            Name{"cuCtxCreate_v3", false},
                            Name{"cuCtxCreate_v4", false},
                            Name{"cuCtxSetCurrent", false},
                            Name{"cuCtxPushCurrent", false},
                            Name{"cuCtxPushCurrent_v2", false},
                            Name{"cuCtxPopCurrent", false},
                            Name{"cuCtxPopCurrent_v2", false},
                            Name{"cuCtxDestroy", false},
                            Name{"cuCtxDestroy_v2", false},
                            Name{"cuCtxDetach", false},
                            Name{"cuDevicePrimaryCtxReset", false},
                            Name{"cuDevicePrimaryCtxReset_v2", false},
                            Name{"cuDevicePrimaryCtxRelease", false},
                            Name{"cuDevicePrimaryCtxRelease_v2", false},
                            Name{"cuLaunchKernel", true},
                            Name{"cuLaunchKernel_ptsz", true},
                            Name{"cuLaunchKernelEx", true},
                            Name{"cuLaunchKernelEx_ptsz", true},
                            Name{"cuLaunchCooperativeKernel", true},
                            Name{"cuLaunchCooperativeKernel_ptsz", true},
                            Name{"cuGraphLaunch", true},
                            Name{"cuGraphLaunch_ptsz", true}};
std::array<std::atomic<unsigned>, kNames.size()> g_calls{};
std::array<std::atomic<void*>, kNames.size()> g_real{};

// All arguments of these entries are integers or pointers, of which at most 11 are passed, so one
// hook with 12 words serves them all: more words on the stack than the driver reads do no harm on
// x86-64.
using Word = unsigned long;
using AnyEntry = CUresult (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                              Word);

template <std::size_t I>
CUresult hook(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j,
              Word k, Word l) {
  ++g_calls[I];
  if (kNames[I].launch) on_launch();
  const CUresult result =
      reinterpret_cast<AnyEntry>(g_real[I].load())(a, b, c, d, e, f, g, h, i, j, k, l);
  if (!kNames[I].launch) on_change();
  return result;
}

template <std::size_t... I>
constexpr std::array<AnyEntry, sizeof...(I)> hooks_of(std::index_sequence<I...>) {
  return {hook<I>...};
}
constexpr auto kHooks = hooks_of(std::make_index_sequence<kNames.size()>());

CUresult get_proc_address(const char* name, void** found, int version, cuuint64_t flags);
CUresult get_proc_address_v2(const char* name, void** found, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status);

/// Ours in place of a driver entry, else the same address.
void* substitute(void* found) {
  if (found == nullptr) return nullptr;
  if (found == driver<void*>("cuGetProcAddress")) return reinterpret_cast<void*>(&get_proc_address);
  if (found == driver<void*>("cuGetProcAddress_v2")) {
    return reinterpret_cast<void*>(&get_proc_address_v2);
  }
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (found != driver<void*>(kNames.at(i).name)) continue;
    g_real.at(i) = found;
    return reinterpret_cast<void*>(kHooks.at(i));
  }
  return found;
}

CUresult get_proc_address(const char* name, void** found, int version, cuuint64_t flags) {
  const CUresult result = driver<GetProcAddress>("cuGetProcAddress")(name, found, version, flags);
  if (result == CUDA_SUCCESS && found != nullptr) *found = substitute(*found);
  return result;
}

CUresult get_proc_address_v2(const char* name, void** found, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  const CUresult result =
      driver<GetProcAddressV2>("cuGetProcAddress_v2")(name, found, version, flags, status);
  if (result == CUDA_SUCCESS && found != nullptr) *found = substitute(*found);
  return result;
}

__attribute__((destructor)) void report() {
  if (g_launches == 0) return;
  std::fprintf(
      stderr,
      "P3 pid %d: %u launches, %u seen changes of the context; launches whose context differs "
      "from the last seen one: %u; threads whose first launch came before any seen change: %u\n",
      getpid(), g_launches.load(), g_changes.load(), g_mismatches.load(), g_first_unseen.load());
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (g_calls.at(i) > 0)
      std::fprintf(stderr, "P3   %-32s %u\n", kNames.at(i).name, g_calls.at(i).load());
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlsym(void* library, const char* name) {
  // A jump, so that the real one still sees its caller.
  if (library == RTLD_NEXT || library == RTLD_DEFAULT) return real_dlsym()(library, name);
  void* found = real_dlsym()(library, name);
  return std::strncmp(name, "cu", 2) == 0 ? substitute(found) : found;
}
