#include "tests/support/standins/fakecupti.hpp"

#include <cupti.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace {

struct State {
  std::mutex mutex;
  bool refuse = false;
  std::set<CUpti_ActivityKind> kinds;
  CUpti_CallbackFunc callback = nullptr;
  void* callback_data = nullptr;
  int subscribers = 0;
  std::set<CUpti_CallbackId> calls;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_TimestampCallbackFunc clock = nullptr;
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
  std::uint32_t calls_made = 0;
  std::uint64_t dropped = 0;
  bool holding = false;
  std::deque<std::pair<std::uint8_t*, std::size_t>> held;
  std::atomic<bool> blocked{false};
};
State g_state;

/// Called with the lock held. Hands a buffer over without the lock, as CUPTI does.
void hand_over(std::unique_lock<std::mutex>& lock) {
  std::uint8_t* const buffer = g_state.buffer;
  const std::size_t size = g_state.size;
  const std::size_t used = g_state.used;
  g_state.buffer = nullptr;
  g_state.used = 0;
  if (buffer == nullptr) return;
  if (g_state.holding) {
    g_state.held.emplace_back(buffer, used);
    return;
  }
  lock.unlock();
  g_state.complete(nullptr, 0, buffer, size, used);
  lock.lock();
}

void put(std::unique_lock<std::mutex>& lock, const CUpti_ActivityKernel9& record) {
  if (g_state.buffer != nullptr && g_state.used + sizeof(record) > g_state.size) hand_over(lock);
  if (g_state.buffer == nullptr) {
    std::size_t records = 0;
    g_state.request(&g_state.buffer, &g_state.size, &records);
    g_state.used = 0;
  }
  if (g_state.buffer == nullptr) {
    ++g_state.dropped;
    return;
  }
  std::memcpy(g_state.buffer + g_state.used, &record, sizeof(record));
  g_state.used += sizeof(record);
}

void hold_buffers(bool hold) {
  std::unique_lock lock(g_state.mutex);
  g_state.holding = hold;
  if (hold) return;
  while (!g_state.held.empty()) {
    const auto [buffer, used] = g_state.held.front();
    g_state.held.pop_front();
    g_state.complete(nullptr, 0, buffer, g_state.size, used);
  }
}

std::uint32_t call() {
  CUpti_CallbackData data{};
  CUpti_CallbackFunc callback = nullptr;
  {
    const std::lock_guard lock(g_state.mutex);
    data.correlationId = ++g_state.calls_made;
    if (g_state.calls.count(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) != 0) {
      callback = g_state.callback;
    }
  }
  if (callback == nullptr) return data.correlationId;
  for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    callback(g_state.callback_data, CUPTI_CB_DOMAIN_DRIVER_API,
             CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &data);
  }
  return data.correlationId;
}

void kernel(std::uint32_t number, std::uint64_t begin_ns, std::uint64_t end_ns,
            std::uint32_t stream, std::uint64_t node, const char* name) {
  std::unique_lock lock(g_state.mutex);
  if (g_state.kinds.count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == 0) return;
  CUpti_ActivityKernel9 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = begin_ns;
  record.end = end_ns;
  record.streamId = stream;
  record.correlationId = number;
  record.graphNodeId = node;
  record.name = name;
  record.gridX = 6;
  record.gridY = 5;
  record.gridZ = 4;
  record.blockX = 32;
  record.blockY = 3;
  record.blockZ = 2;
  record.registersPerThread = 40;
  record.staticSharedMemory = 1000;
  record.dynamicSharedMemory = 24;
  put(lock, record);
}

}  // namespace

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

SLUICE_EXPORT const FakeCupti* fake_cupti() {
  static const FakeCupti kFake{
      [](bool refuse) { g_state.refuse = refuse; },
      &call,
      &kernel,
      [](bool block) { g_state.blocked.store(block); },
      &hold_buffers,
      [] { return g_state.clock(); },
      [] { return g_state.dropped; },
      [] { return g_state.subscribers; },
  };
  return &kFake;
}

SLUICE_EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc now) {
  // CUPTI documents this: earlier records would have another clock.
  if (!g_state.kinds.empty()) return CUPTI_ERROR_INVALID_OPERATION;
  g_state.clock = now;
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete) {
  g_state.request = request;
  g_state.complete = complete;
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (g_state.refuse) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  g_state.kinds.insert(kind);
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle,
                                         CUpti_CallbackFunc callback, void* data) {
  if (g_state.subscribers != 0) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  g_state.subscribers = 1;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&g_state);
  g_state.callback = callback;
  g_state.callback_data = data;
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  g_state.subscribers = 0;
  g_state.callback = nullptr;
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle,
                                              CUpti_CallbackDomain domain, CUpti_CallbackId call) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || enable == 0) return CUPTI_ERROR_INVALID_PARAMETER;
  g_state.calls.insert(call);
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, std::size_t*, void*) {
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  while (g_state.blocked.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::unique_lock lock(g_state.mutex);
  hand_over(lock);
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid,
                                                     CUpti_Activity** record) {
  auto* next = *record == nullptr
                   ? buffer
                   : reinterpret_cast<std::uint8_t*>(*record) + sizeof(CUpti_ActivityKernel9);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

SLUICE_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                                        : "CUPTI_ERROR_UNKNOWN";
  return CUPTI_SUCCESS;
}
