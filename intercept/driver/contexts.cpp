#include "intercept/driver/contexts.hpp"

#include "intercept/driver/threads.hpp"

namespace sluice::intercept {
namespace {

/// Null if we keep none for the device.
Primary* primary_of(CUdevice device) noexcept {
  const auto index = static_cast<std::size_t>(device);
  return index < kMostDevices ? &g_process.primaries[index] : nullptr;
}

}  // namespace

/// A driver before CUDA 12.0 has no numbers.
ContextId identify(CUcontext context) noexcept {
  unsigned long long number = 0;
  const bool told = context != nullptr && driver().cuCtxGetId != nullptr &&
                    driver().cuCtxGetId(context, &number) == CUDA_SUCCESS;
  return {context, told ? number + 1 : 0};
}

ContextId primary_id(CUdevice device) noexcept {
  const Primary* const primary = primary_of(device);
  if (primary == nullptr) return {};
  return {primary->context.load(), primary->number.load()};
}

std::optional<bool> primary_state(CUdevice device) noexcept {
  const NoCancel whole;
  unsigned flags = 0;
  int active = 0;
  const bool told = driver().cuDevicePrimaryCtxGetState != nullptr &&
                    driver().cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS;
  return told ? std::optional(active != 0) : std::nullopt;
}

PrimaryRetain::PrimaryRetain(CUdevice device) noexcept : device_(device) {
  if (Primary* const primary = primary_of(device)) primary->retains.fetch_add(1);
}

PrimaryRetain::~PrimaryRetain() {
  if (Primary* const primary = primary_of(device_)) primary->retains.fetch_sub(1);
}

/// The one that was noted before, if it has ended.
ContextId PrimaryRetain::note(CUcontext context) const noexcept {
  Primary* const primary = primary_of(device_);
  if (primary == nullptr) return {};
  const ContextId now = identify(context);
  const ContextId before = primary_id(device_);
  primary->context.store(context);
  primary->number.store(now.number);
  return now.is(before) ? ContextId{} : before;
}

bool primary_has_ended(CUdevice device, const ContextId& was) noexcept {
  if (primary_state(device) == false) return true;
  const Primary* const primary = primary_of(device);
  if (primary == nullptr || was.handle == nullptr) return false;
  const auto same = [&] { return was.is(primary_id(device)); };
  constexpr std::uint64_t kLongestNs = 2'000'000'000;  // a context begins in less
  nap_while([&] { return same() && primary->retains.load() != 0; }, kLongestNs);
  return !same();
}

}  // namespace sluice::intercept
