#include "tests/support/standins/fakenvml.hpp"

#include <algorithm>

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

template <class Item>
int list(const std::vector<Item>& from, unsigned* count, Item* to) {
  if (fake_nvml()->open == 0) return kUninitialized;
  const unsigned room = *count;
  *count = static_cast<unsigned>(from.size());
  if (room < from.size()) return kInsufficientSize;
  std::copy(from.begin(), from.end(), to);
  return kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names of NVML
SLUICE_EXPORT FakeNvml* fake_nvml() {
  static FakeNvml state;
  return &state;
}

SLUICE_EXPORT int nvmlInit_v2() {
  ++fake_nvml()->open;
  return kSuccess;
}

SLUICE_EXPORT int nvmlShutdown() {
  --fake_nvml()->open;
  return kSuccess;
}

SLUICE_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (fake_nvml()->open == 0) return kUninitialized;
  if (uuid != fake_nvml()->uuid) return kNotFound;
  *device = fake_nvml();
  return kSuccess;
}

SLUICE_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count,
                                                          FakeNvml::Process* to) {
  return list(static_cast<FakeNvml*>(device)->compute, count, to);
}

SLUICE_EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(void* device, unsigned* count,
                                                             FakeNvml::Process* to) {
  return list(static_cast<FakeNvml*>(device)->mps, count, to);
}
SLUICE_EXPORT int nvmlDeviceGetUtilizationRates(void* device, FakeNvml::Utilization* to) {
  const auto& known = static_cast<FakeNvml*>(device)->utilization;
  if (!known) return kNotSupported;
  *to = *known;
  return kSuccess;
}

SLUICE_EXPORT int nvmlDeviceGetProcessUtilization(void* device, FakeNvml::Sample* to,
                                                  unsigned* count, unsigned long long since_us) {
  const auto& known = static_cast<FakeNvml*>(device)->samples;
  if (!known) return kNotSupported;
  const bool any = std::any_of(known->begin(), known->end(),
                               [since_us](const auto& sample) { return sample.at_us > since_us; });
  return any ? list(*known, count, to) : kNotFound;  // together with what is older
}
// NOLINTEND(readability-identifier-naming)
