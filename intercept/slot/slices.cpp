#include "intercept/slot/slices.hpp"

#include <algorithm>
#include <utility>

#include "intercept/driver/driver.hpp"
#include "intercept/driver/log.hpp"
#include "intercept/driver/process.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

using shm::SliceState;
using Result = ChannelGroups::Result;

namespace {

Result set_slice(CUdevice device, std::uint32_t us) noexcept {
  const auto simulated = driver().simgpu_set_slice;
  if (simulated == nullptr) return g_process.channel_groups.set(device, us);
  const CUresult result = simulated(device, us);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return Result::kNone;
  return result == CUDA_SUCCESS ? Result::kSet : Result::kRefused;
}

}  // namespace

bool Slices::tick(std::uint64_t now_ns, std::uint64_t host_ns, std::uint64_t waited_ns) noexcept {
  shm::Slot& words = client_.slot();
  note_use(now_ns);
  words.gpu_share.store(
      share_.tick(words.gpu_ns.load(), words.job_times.ended.load(), host_ns, waited_ns));
  words.turn.connected.store(g_process.connected.load() ? 1 : 0);
  if (!client_.gate_closed()) note_coverage();
  const SliceRule::Slice slice = rule_.tick(client_.seat().board, client_.seat().slot, now_ns);
  wanted_.store(slice);
  now_ns_.store(now_ns);
  const std::uint64_t retry_ns = retry_ns_.load();
  const bool due = slice != set_now_.load() ||
                   changes_.load() != g_process.channel_groups.changes(client_.device()) ||
                   (retry_ns != 0 && now_ns >= retry_ns);
  if (due) setter_.wake();
  return due;
}

/// Under policy none a closed gate stops nothing.
void Slices::note_use(std::uint64_t now_ns) noexcept {
  shm::Slot& words = client_.slot();
  const bool heeds_gate = client_.policy().heeds_gate();
  const bool uses = use_.tick({.gpu_ns = words.gpu_ns.load(),
                               .launches = client_.launches(),
                               .has_job = shm::has_job(words),
                               .held = heeds_gate && client_.gate_closed()},
                              now_ns);
  if (uses) words.busy_ns.store(now_ns);
}

/// The mean of the last second or so.
void Slices::note_coverage() noexcept {
  constexpr std::uint32_t kTicks = 32;
  shm::Slot& words = client_.slot();
  shm::HalfWord& covered = words.turn.covered;
  const std::uint32_t sum = covered.load() * (kTicks - 1);
  covered.store((shm::has_job(words) ? sum + 1000 + kTicks - 1 : sum) / kTicks);
}

/// What the driver has set need not be set.
bool Slices::must_set(SliceRule::Slice slice, std::uint32_t changes) const noexcept {
  if (slice.us != set_now_.load().us) return true;
  if (slice.us != 0 && changes != changes_.load()) return true;
  const std::uint64_t retry_ns = retry_ns_.load();
  return retry_ns != 0 && (changes != changes_.load() || now_ns_.load() >= retry_ns);
}

void Slices::apply() noexcept {
  const SliceRule::Slice slice = wanted_.load();
  const std::uint32_t changes = g_process.channel_groups.changes(client_.device());
  const bool due = must_set(slice, changes);
  if (due) {
    if (slice.us != set_now_.load().us) failures_ = 0;
    result_ = set_slice(client_.device(), slice.us);
    plan_retry();
  }
  if (due && slice.us != 0) last_ = result_;
  changes_.store(changes);
  set_now_.store(slice);
  if (result_ == Result::kRefused) {
    const bool simulated = driver().simgpu_set_slice != nullptr;
    return show({simulated ? 0 : g_process.channel_groups.longest_us(), SliceState::kRefused});
  }
  // Others take turns so that slices can be short. Here they cannot.
  const bool in_vain =
      slice.state == SliceState::kSeveral && (last_ != Result::kSet || client_.under_mps());
  const bool no_group = client_.under_mps() || last_ == Result::kNone;
  if (slice.us != 0 && result_ == Result::kNone) return show({0, SliceState::kNoGroup});
  if (in_vain) return show({0, no_group ? SliceState::kNoGroup : SliceState::kRefused});
  show(slice);
}

/// A context that ends while slices are set is refused once, and says nothing about the system.
void Slices::plan_retry() noexcept {
  constexpr int kSaid = 3;
  if (result_ != Result::kRefused) {
    failures_ = 0;
    retry_ns_.store(0);
    return;
  }
  const std::uint64_t after_ns = std::min(kFirstRetryNs << std::min(failures_, 16), kLastRetryNs);
  retry_ns_.store(now_ns_.load() + after_ns);
  if (++failures_ < kSaid || std::exchange(said_, true)) return;
  Line(Level::kInfo) << "the system does not let this process set its time slices";
}

void Slices::show(SliceRule::Slice slice) noexcept {
  client_.slot().slice_us.store(slice.us);
  client_.slot().slice_state.store(static_cast<std::uint32_t>(slice.state));
}

}  // namespace sluice::intercept
