#include "engine/memory/arena.hpp"

#include "base/error.hpp"

namespace sluice::engine {

Arena::Arena(std::shared_ptr<const DeviceContext> context, Placement placement, std::uint64_t bytes)
    : context_(std::move(context)), placement_(placement) {
  const std::uint64_t page = Pages::granularity(*context_);
  bytes_ = (bytes + page - 1) / page * page;
  if (placement_ == Placement::kAnywhere || bytes_ == 0) return;
  SLUICE_DRIVER(context_->driver(), cuMemAddressReserve(&address_, bytes_, page, 0, 0));
}

Arena::~Arena() {
  try {
    give_back();
  } catch (const base::RunError&) {
    // Only with a lost context. The end of the process frees the memory.
  }
  if (placement_ == Placement::kFixed && address_ != 0) {
    context_->driver().cuMemAddressFree(address_, bytes_);
  }
}

void Arena::take() {
  if (taken_ || bytes_ == 0) return;
  const DeviceContext::Current current(*context_);
  if (placement_ == Placement::kFixed) {
    pages_.emplace(context_, address_, bytes_);
  } else {
    SLUICE_DRIVER(context_->driver(), cuMemAlloc(&address_, bytes_));
  }
  taken_ = true;
}

void Arena::give_back() {
  if (!taken_) return;
  const DeviceContext::Current current(*context_);
  taken_ = false;
  if (placement_ == Placement::kFixed) {
    pages_.reset();
  } else {
    SLUICE_DRIVER(context_->driver(), cuMemFree(address_));
  }
}

}  // namespace sluice::engine
