#include "intercept/driver/primary_context.hpp"

#include <array>
#include <atomic>

namespace sluice::intercept {
namespace {

constexpr std::size_t kMaxDevices = 64;
constinit std::array<std::atomic<CUcontext>, kMaxDevices> g_primary{};

}  // namespace

CUcontext primary_context(CUdevice device) noexcept {
  const auto index = static_cast<std::size_t>(device);
  return index < kMaxDevices ? g_primary[index].load() : nullptr;
}

void note_primary_context(CUdevice device, CUcontext context) noexcept {
  const auto index = static_cast<std::size_t>(device);
  if (index < kMaxDevices) g_primary[index].store(context);
}

bool primary_is_active(CUdevice device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return driver().cuDevicePrimaryCtxGetState != nullptr &&
         driver().cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
         active != 0;
}

}  // namespace sluice::intercept
