#include "intercept/jobs/early_switch.hpp"

#include <array>
#include <atomic>

#include "intercept/client/process.hpp"
#include "intercept/client/threads.hpp"
#include "intercept/driver/capture_mode.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/primary_context.hpp"

namespace sluice::intercept {
namespace {

constexpr const char* kNothing = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry sluice_early_switch() { ret; }
)";

struct Loaded {
  std::atomic<pid_t> beginning{0};  ///< The thread that is loading the kernel.
  std::atomic<CUstream> stream{nullptr};
  std::atomic<CUfunction> nothing{nullptr};  ///< Written last; null if there is no early switch.
};

constexpr std::size_t kMaxDevices = 64;
constinit std::array<Loaded, kMaxDevices> g_loaded{};

Loaded* loaded_on(CUdevice device) noexcept {
  const auto index = static_cast<std::size_t>(device);
  return index < kMaxDevices ? &g_loaded[index] : nullptr;
}

bool has_all_calls() noexcept {
  const Driver& calls = driver();
  return calls.cuModuleLoadData != nullptr && calls.cuModuleGetFunction != nullptr &&
         calls.cuStreamCreate != nullptr && calls.cuCtxPushCurrent_v2 != nullptr &&
         calls.cuCtxPopCurrent_v2 != nullptr && calls.cuDeviceGetAttribute != nullptr &&
         calls.cuDevicePrimaryCtxGetState != nullptr;
}

void load(Loaded& loaded, CUcontext context) noexcept {
  const Driver& calls = driver();
  const RelaxedCapture relaxed;
  if (calls.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  CUstream stream = nullptr;
  // May fail, for example with CUDA_DISABLE_PTX_JIT.
  if (calls.cuModuleLoadData(&module, kNothing) == CUDA_SUCCESS &&
      calls.cuModuleGetFunction(&nothing, module, "sluice_early_switch") == CUDA_SUCCESS &&
      calls.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    loaded.stream.store(stream);
    loaded.nothing.store(nothing);
  }
  CUcontext popped = nullptr;
  calls.cuCtxPopCurrent_v2(&popped);
}

}  // namespace

RetainPrimary::RetainPrimary(CUdevice device) noexcept : device_(device) {
  Loaded* const loaded = loaded_on(device);
  if (loaded == nullptr || in_forked_child() || !has_all_calls() || primary_is_active(device))
    return;
  pid_t before = loaded->beginning.load();
  const bool free = before == 0 || ThreadMarks::is_gone(before);
  begins_ = free && loaded->beginning.compare_exchange_strong(before, thread_id());
}

void RetainPrimary::returned(CUcontext context, bool wanted) noexcept {
  Loaded* const loaded = loaded_on(device_);
  if (loaded == nullptr || in_forked_child()) return;
  if (begins_) {
    if (context != nullptr && wanted && !is_under_mps(device_)) load(*loaded, context);
    loaded->beginning.store(0);
    return;
  }
  constexpr std::uint64_t kLongestNs = 2'000'000'000;
  const auto loads = [loaded] {
    const pid_t thread = loaded->beginning.load();
    return thread != 0 && !ThreadMarks::is_gone(thread);
  };
  if (context != nullptr) nap_while(loads, kLongestNs);
}

/// A client that is held must not switch: its kernel would interrupt the job that holds it, and
/// with a full queue behind its gate the driver would block. Priority is read here because it may
/// have changed.
bool EarlySwitch::may_switch() const noexcept {
  return !client_.gate_closed() && client_.priority() != 0;
}

void EarlySwitch::operator()() noexcept {
  Loaded* const loaded = loaded_on(client_.device());
  if (loaded == nullptr || loaded->nothing.load() == nullptr || !may_switch()) return;
  const CUcontext context = primary_context(client_.device());
  // The query is of our own stream, so only a thread that ends the context waits for it.
  const DriverQuery query(context, loaded->stream.load());
  const CUfunction nothing = loaded->nothing.load();
  // The context may have ended, and another one may have begun.
  if (!query || nothing == nullptr || primary_context(client_.device()) != context ||
      !primary_is_active(client_.device())) {
    return;
  }
  const RelaxedCapture relaxed;
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return;
  // At most one kernel is under way: if the GPU reaches none for long, more would fill their queue,
  // and then the driver blocks.
  const CUstream stream = loaded->stream.load();
  if (driver().cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) {
    driver().cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
}

void EarlySwitch::forget_context(CUcontext context) noexcept {
  for (std::size_t i = 0; i < g_loaded.size(); ++i) {
    const bool ends = context == nullptr || primary_context(static_cast<CUdevice>(i)) == context;
    if (ends) g_loaded[i].nothing.store(nullptr);
  }
}

}  // namespace sluice::intercept
