// libsluice_cupti.so reports when the kernels of this process ran on the GPU, from CUPTI's activity
// records. A CUPTI callback within the launch tells to which launch a kernel belongs. CUPTI's
// records of external correlation cannot: for a launch through the CUDA runtime they are made
// before the runtime calls the driver, and so before a hook on the driver can number the launch
// (measured with CUPTI 13.0).

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/kernel_collector.h"
#include "intercept/trace/cupti/buffers.hpp"
#include "intercept/trace/cupti/by_call.hpp"
#include "intercept/trace/cupti/cupti_library.hpp"

namespace sluice::collector {
namespace {

using Kernel = CUpti_ActivityKernel9;

// A CUPTI writes the newest record it knows. What is read here has kept its place since CUDA 11.
#define SLUICE_SAME_PLACE(other, field) \
  static_assert(offsetof(Kernel, field) == offsetof(other, field))
#define SLUICE_SAME_RECORD(other)                \
  SLUICE_SAME_PLACE(other, start);               \
  SLUICE_SAME_PLACE(other, end);                 \
  SLUICE_SAME_PLACE(other, streamId);            \
  SLUICE_SAME_PLACE(other, correlationId);       \
  SLUICE_SAME_PLACE(other, name);                \
  SLUICE_SAME_PLACE(other, gridX);               \
  SLUICE_SAME_PLACE(other, gridZ);               \
  SLUICE_SAME_PLACE(other, blockX);              \
  SLUICE_SAME_PLACE(other, blockZ);              \
  SLUICE_SAME_PLACE(other, registersPerThread);  \
  SLUICE_SAME_PLACE(other, staticSharedMemory);  \
  SLUICE_SAME_PLACE(other, dynamicSharedMemory); \
  SLUICE_SAME_PLACE(other, graphNodeId)
SLUICE_SAME_RECORD(CUpti_ActivityKernel5);
SLUICE_SAME_RECORD(CUpti_ActivityKernel8);
#if CUPTI_API_VERSION >= 130000
SLUICE_SAME_RECORD(CUpti_ActivityKernel10);
#endif

/// The driver calls that can be a launch.
constexpr std::array<CUpti_CallbackId, 12> kCalls{
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice};

/// CUPTI's counts are signed.
std::uint32_t unsigned_of(std::int32_t count) { return static_cast<std::uint32_t>(count); }

class Collector {
 public:
  explicit Collector(SluiceExecuted executed) noexcept : executed_(executed) {}

  /// Starts to collect. Empty, or the reason why it cannot.
  std::string start();
  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  void flush() noexcept;
  /// Waits for at most 0.5 s until all ended kernels are reported. After that, nothing here calls
  /// CUPTI any more.
  void finish() noexcept;
  /// For a forked child, in which CUPTI does not work.
  void abandon() noexcept { active_.store(false); }

  std::uint8_t* take_buffer() noexcept { return buffers_.take(); }
  /// note_launch() records that driver call `call` is this launch; note_stream() records its
  /// stream.
  void note_launch(std::uint32_t call, std::uint64_t launch) noexcept {
    launches_.set(call, launch);
  }
  void note_stream(std::uint32_t call, std::uint64_t stream) noexcept {
    streams_.set(call, stream);
  }
  void read_buffer(std::uint8_t* buffer, std::size_t used) noexcept;

 private:
  std::string subscribe();
  std::string enable();
  [[nodiscard]] std::string refused(const char* what, CUptiResult result) const;
  std::uint64_t stream_of(const Kernel& kernel);

  SluiceExecuted executed_;
  Cupti cupti_;
  Buffers buffers_;
  std::mutex mutex_;
  ByCall launches_;
  ByCall streams_;
  std::unordered_map<std::uint32_t, std::uint64_t> stream_names_;  ///< By CUPTI's number.
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<bool> active_{false};
  std::atomic<std::uint64_t> flushes_begun_{0};
  std::atomic<std::uint64_t> flushes_ended_{0};
};

/// Set once and never destroyed: CUPTI's thread may call until the process ends.
constinit std::atomic<Collector*> g_collector{nullptr};

// CUPTI's callbacks have no argument of ours.
void CUPTIAPI on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  Collector* collector = g_collector.load();
  *buffer = collector == nullptr ? nullptr : collector->take_buffer();
  *size = *buffer == nullptr ? 0 : Buffers::kSize;
  *records = 0;
}

void CUPTIAPI on_complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t used) {
  if (Collector* collector = g_collector.load()) collector->read_buffer(buffer, used);
}

std::uint64_t CUPTIAPI now() { return base::monotonic_ns(); }

/// The launch that this thread is making; 0 if none.
constinit thread_local std::uint64_t t_launch = 0;
/// CUPTI's number of the driver call for that launch; 0 before the call.
constinit thread_local std::uint32_t t_call = 0;

void CUPTIAPI on_call(void* self, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite != CUPTI_API_ENTER || t_launch == 0) return;
  t_call = call.correlationId;
  static_cast<Collector*>(self)->note_launch(t_call, t_launch);
}

std::string Collector::start() {
  std::string wrong = load_cupti(cupti_);
  if (!wrong.empty()) return wrong;
  if (!buffers_.reserve()) return "no memory for the buffers of CUPTI";
  g_collector.store(this);
  wrong = subscribe();
  if (wrong.empty()) wrong = enable();
  if (!wrong.empty()) {
    if (subscriber_ != nullptr) cupti_.cuptiUnsubscribe(subscriber_);
    return wrong;
  }
  active_.store(true);
  return {};
}

std::string Collector::refused(const char* what, CUptiResult result) const {
  const char* text = nullptr;
  cupti_.cuptiGetResultString(result, &text);
  return std::string("CUPTI refuses ") + what + ": " + (text == nullptr ? "unknown" : text);
}

std::string Collector::subscribe() {
  CUptiResult result = cupti_.cuptiSubscribe(&subscriber_, &on_call, this);
  if (result != CUPTI_SUCCESS) {
    subscriber_ = nullptr;
    return refused("us", result) + (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                                        ? " (this process has another profiler)"
                                        : "");
  }
  for (const CUpti_CallbackId call : kCalls) {
    result = cupti_.cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, call);
    if (result != CUPTI_SUCCESS) return refused("to tell of launches", result);
  }
  return {};
}

std::string Collector::enable() {
  // Otherwise launching threads would clear the buffers. If CUPTI clears them anyway, that does no
  // harm.
  std::uint8_t zeroed = 1;
  std::size_t size = sizeof(zeroed);
  cupti_.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
  // Before everything else: earlier records would have times of another clock.
  CUptiResult result = cupti_.cuptiActivityRegisterTimestampCallback(&now);
  if (result != CUPTI_SUCCESS) return refused("our clock", result);
  result = cupti_.cuptiActivityRegisterCallbacks(&on_request, &on_complete);
  if (result != CUPTI_SUCCESS) return refused("our buffers", result);
  result = cupti_.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (result != CUPTI_SUCCESS) return refused("records of kernels", result);
  return {};
}

void Collector::flush() noexcept {
  flushes_begun_.fetch_add(1);
  if (active()) cupti_.cuptiActivityFlushAll(0);
  flushes_ended_.fetch_add(1);
}

void Collector::finish() noexcept {
  using std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience(500);
  const auto until = steady_clock::now() + kPatience;
  // A flush that begins from now on includes all work that the program has waited for. A flush may
  // block in the driver, so the leaving thread neither makes one nor waits for one indefinitely.
  const std::uint64_t wanted = flushes_begun_.load() + 1;
  while (active() && flushes_ended_.load() < wanted && steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  active_.store(false);
}

/// CUPTI numbers streams in its own way, and the kernels of a graph have no launch of their own.
std::uint64_t Collector::stream_of(const Kernel& kernel) {
  constexpr std::size_t kMost = 65536;
  const auto found = stream_names_.find(kernel.streamId);
  if (found != stream_names_.end()) return found->second;
  const std::uint64_t stream = kernel.graphNodeId != 0 ? 0 : streams_.of(kernel.correlationId);
  if (stream == 0) return kernel.streamId;
  if (stream_names_.size() == kMost) stream_names_.clear();
  stream_names_.emplace(kernel.streamId, stream);
  return stream;
}

void Collector::read_buffer(std::uint8_t* buffer, std::size_t used) noexcept {
  const std::lock_guard lock(mutex_);
  CUpti_Activity* record = nullptr;
  try {
    while (cupti_.cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) {
      if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
      const auto& kernel = *reinterpret_cast<Kernel*>(record);
      if (kernel.start == 0 || kernel.end == 0) continue;  // its times are missing
      const SluiceKernel ended{
          .begin_ns = kernel.start,
          .end_ns = kernel.end,
          .correlation = launches_.of(kernel.correlationId),
          .stream = stream_of(kernel),
          .node = kernel.graphNodeId,
          .name = kernel.name,
          .grid = {unsigned_of(kernel.gridX), unsigned_of(kernel.gridY), unsigned_of(kernel.gridZ)},
          .block = {unsigned_of(kernel.blockX), unsigned_of(kernel.blockY),
                    unsigned_of(kernel.blockZ)},
          .registers = kernel.registersPerThread,
          .shared_bytes =
              unsigned_of(kernel.staticSharedMemory) + unsigned_of(kernel.dynamicSharedMemory)};
      executed_(&ended);
    }
  } catch (const std::bad_alloc&) {
    active_.store(false);  // stop collecting
  }
  buffers_.give_back(buffer);
}

}  // namespace
}  // namespace sluice::collector

using sluice::collector::g_collector;

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

SLUICE_EXPORT const char* sluice_collector_start(SluiceExecuted executed) {
  using sluice::collector::Collector;
  static std::string wrong;
  if (g_collector.load() != nullptr) return "CUPTI is collecting already";
  try {
    Collector* collector = std::make_unique<Collector>(executed).release();
    wrong = collector->start();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) return wrong.c_str();
  // Registered now, so that it runs before the exit handlers of CUPTI and the driver.
  std::atexit([] { g_collector.load()->finish(); });
  pthread_atfork(nullptr, nullptr, [] { g_collector.load()->abandon(); });
  return nullptr;
}

SLUICE_EXPORT void sluice_collector_begin(std::uint64_t correlation) {
  using sluice::collector::t_call, sluice::collector::t_launch;
  t_launch = g_collector.load(std::memory_order_relaxed)->active() ? correlation : 0;
  t_call = 0;
}

SLUICE_EXPORT void sluice_collector_end(std::uint64_t stream) {
  using sluice::collector::t_call, sluice::collector::t_launch;
  t_launch = 0;
  if (t_call != 0) g_collector.load(std::memory_order_relaxed)->note_stream(t_call, stream);
}

SLUICE_EXPORT void sluice_collector_flush() { g_collector.load()->flush(); }
