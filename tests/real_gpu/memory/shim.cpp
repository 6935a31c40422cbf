// libmemory_shim.so, preloaded by memory.sh: refuses launches with
// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES while a program asks for it, bounds how far the host runs
// ahead of the GPU, and measures how long the GPU needs to drain. The program controls it by the
// functions shim_...; see shim.py.
#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#undef cuGetProcAddress

namespace {

using Dlsym = void* (*)(void*, const char*);
using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcAddressV2 = CUresult (*)(const char*, void**, int, cuuint64_t,
                                      CUdriverProcAddressQueryResult*);
constexpr std::int64_t kNever = INT64_MAX;

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

/// CLOCK_MONOTONIC in ns: the clock of Python's time.monotonic_ns().
std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

std::atomic<std::int64_t> g_launches{0};
std::atomic<std::int64_t> g_refused{0};
std::atomic<std::int64_t> g_refused_at{0};         // The instant of the order; 0: none.
std::atomic<std::int64_t> g_first_refusal{0};      // The first refused launch; 0: none.
std::atomic<std::int64_t> g_refuse_after{kNever};  // A value of g_launches.
std::atomic<std::int64_t> g_refuse_time{kNever};
std::atomic<bool> g_refusing{false};
std::atomic<bool> g_drain_asked{false};
std::atomic<std::int64_t> g_drain_ns{-1};

/// Whether this launch is refused. Once true, every launch is refused until shim_disarm.
bool refuse(std::int64_t launch) {
  if (!g_refusing.load()) {
    const std::int64_t time = g_refuse_time.load();
    const std::int64_t now = now_ns();
    if (launch < g_refuse_after.load() && now < time) return false;
    g_refused_at = now < time ? now : time;
    g_first_refusal = now;
    g_refusing = true;
  }
  ++g_refused;
  return true;
}

/// An event after each group of launches. The host waits for the event of `depth` groups ago, so at
/// most depth + 1 groups are queued.
class RunAhead {
 public:
  void set(std::int64_t group, std::int64_t depth) {
    const std::lock_guard lock(mutex_);
    group_ = group;
    depth_ = depth < kMaxDepth ? depth : kMaxDepth;
    in_group_ = recorded_ = 0;
  }

  void launched(CUstream stream, bool per_thread) {
    if (group_.load() == 0) return;
    const std::lock_guard lock(mutex_);
    if (group_ == 0 || ++in_group_ < group_) return;
    in_group_ = 0;
    if (recorded_ >= depth_) wait_(event_(recorded_ - depth_));
    CUevent event = event_(recorded_);
    (per_thread ? record_per_thread_ : record_)(event, stream);
    ++recorded_;
  }

 private:
  static constexpr std::int64_t kMaxDepth = 63;
  using Record = CUresult (*)(CUevent, CUstream);

  CUevent event_(std::int64_t index) {
    if (wait_ == nullptr) {
      record_ = driver<Record>("cuEventRecord");
      record_per_thread_ = driver<Record>("cuEventRecord_ptsz");
      wait_ = driver<CUresult (*)(CUevent)>("cuEventSynchronize");
    }
    CUevent& event = events_.at(static_cast<std::size_t>(index) % events_.size());
    if (event == nullptr) {
      driver<CUresult (*)(CUevent*, unsigned)>("cuEventCreate")(&event, CU_EVENT_DISABLE_TIMING);
    }
    return event;
  }

  std::mutex mutex_;
  std::atomic<std::int64_t> group_{0};  // Launches; 0: no bound.
  std::int64_t depth_ = 0;
  std::int64_t in_group_ = 0;
  std::int64_t recorded_ = 0;
  std::array<CUevent, kMaxDepth + 1> events_{};
  Record record_ = nullptr;
  Record record_per_thread_ = nullptr;
  CUresult (*wait_)(CUevent) = nullptr;
};
RunAhead g_run_ahead;

/// What cuCtxSynchronize takes at this launch, if somebody asked for it.
void measure_drain() {
  if (!g_drain_asked.load() || !g_drain_asked.exchange(false)) return;
  static const auto kSynchronize = driver<CUresult (*)()>("cuCtxSynchronize");
  const std::int64_t begin = now_ns();
  kSynchronize();
  g_drain_ns = now_ns() - begin;
}

template <class Function, class... Arguments>
CUresult launch(Function real, CUstream stream, bool per_thread, Arguments... arguments) {
  if (refuse(g_launches++)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  measure_drain();
  const CUresult result = real(arguments...);
  g_run_ahead.launched(stream, per_thread);
  return result;
}

}  // namespace

// Exported, because PyTorch's own launcher of compiled kernels is linked to the driver.
#define SHIM_EXPORT extern "C" __attribute__((visibility("default")))
#define SHIM_LAUNCHES(suffix, per_thread)                                                          \
  SHIM_EXPORT CUresult cuLaunchKernel##suffix(                                                     \
      CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,        \
      unsigned bz, unsigned shared, CUstream stream, void** arguments, void** extra) {             \
    static const auto kReal = driver<decltype(&cuLaunchKernel)>("cuLaunchKernel" #suffix);         \
    return launch(kReal, stream, per_thread, function, gx, gy, gz, bx, by, bz, shared, stream,     \
                  arguments, extra);                                                               \
  }                                                                                                \
  SHIM_EXPORT CUresult cuLaunchKernelEx##suffix(const CUlaunchConfig* config, CUfunction function, \
                                                void** arguments, void** extra) {                  \
    static const auto kReal = driver<decltype(&cuLaunchKernelEx)>("cuLaunchKernelEx" #suffix);     \
    return launch(kReal, config->hStream, per_thread, config, function, arguments, extra);         \
  }                                                                                                \
  SHIM_EXPORT CUresult cuLaunchCooperativeKernel##suffix(                                          \
      CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,        \
      unsigned bz, unsigned shared, CUstream stream, void** arguments) {                           \
    static const auto kReal =                                                                      \
        driver<decltype(&cuLaunchCooperativeKernel)>("cuLaunchCooperativeKernel" #suffix);         \
    return launch(kReal, stream, per_thread, function, gx, gy, gz, bx, by, bz, shared, stream,     \
                  arguments);                                                                      \
  }                                                                                                \
  SHIM_EXPORT CUresult cuGraphLaunch##suffix(CUgraphExec graph, CUstream stream) {                 \
    static const auto kReal = driver<decltype(&cuGraphLaunch)>("cuGraphLaunch" #suffix);           \
    return launch(kReal, stream, per_thread, graph, stream);                                       \
  }
SHIM_LAUNCHES(, false)
SHIM_LAUNCHES(_ptsz, true)

namespace {

struct Hook {
  const char* name;
  void* ours;
};
#define SHIM_HOOK(name) \
  Hook { #name, reinterpret_cast < void*>(&name) }
const std::array kHooks{SHIM_HOOK(cuLaunchKernel),
                        SHIM_HOOK(cuLaunchKernel_ptsz),
                        SHIM_HOOK(cuLaunchKernelEx),
                        SHIM_HOOK(cuLaunchKernelEx_ptsz),
                        SHIM_HOOK(cuLaunchCooperativeKernel),
                        SHIM_HOOK(cuLaunchCooperativeKernel_ptsz),
                        SHIM_HOOK(cuGraphLaunch),
                        SHIM_HOOK(cuGraphLaunch_ptsz)};

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
  for (const Hook& hook : kHooks) {
    if (found == driver<void*>(hook.name)) return hook.ours;
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

}  // namespace

SHIM_EXPORT void* dlsym(void* library, const char* name) {
  // A jump, so that the real one still sees its caller.
  if (library == RTLD_NEXT || library == RTLD_DEFAULT) return real_dlsym()(library, name);
  void* found = real_dlsym()(library, name);
  return std::strncmp(name, "cu", 2) == 0 ? substitute(found) : found;
}

/// Refuses launches after `launches` more of them, or `delay_ns` from now; negative: not by that.
SHIM_EXPORT void shim_arm(std::int64_t launches, std::int64_t delay_ns) {
  g_refusing = false;
  g_refused = g_refused_at = g_first_refusal = 0;
  g_refuse_after = launches < 0 ? kNever : g_launches.load() + launches;
  g_refuse_time = delay_ns < 0 ? kNever : now_ns() + delay_ns;
}
/// Lets every launch through again. Returns the number of launches refused since shim_arm.
SHIM_EXPORT std::int64_t shim_disarm() {
  g_refuse_after = g_refuse_time = kNever;
  g_refusing = false;
  return g_refused.exchange(0);
}
/// The instant since which launches were refused, and of the first refused launch; CLOCK_MONOTONIC,
/// ns.
SHIM_EXPORT std::int64_t shim_refused_at() { return g_refused_at; }
SHIM_EXPORT std::int64_t shim_first_refusal() { return g_first_refusal; }
SHIM_EXPORT std::int64_t shim_launches() { return g_launches; }
/// At most depth + 1 groups of this many launches are queued; group 0: no bound.
SHIM_EXPORT void shim_bound(std::int64_t group, std::int64_t depth) {
  g_run_ahead.set(group, depth);
}
/// The next launch first drains the GPU. shim_drain_ns returns how long it took, -1 until then.
SHIM_EXPORT void shim_ask_drain() {
  g_drain_ns = -1;
  g_drain_asked = true;
}
SHIM_EXPORT std::int64_t shim_drain_ns() { return g_drain_ns; }
