#include "intercept/slot/slices.hpp"

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
  return simulated(device, us) == CUDA_SUCCESS ? Result::kSet : Result::kNone;
}

}  // namespace

void Slices::tick(std::uint64_t now_ns, std::uint64_t host_ns, std::uint64_t waited_ns) noexcept {
  shm::Slot& words = client_.slot();
  const std::uint64_t launches = client_.launches();
  if (launches != launches_ || words.sync_since_ns.load() != 0) words.busy_ns.store(now_ns);
  launches_ = launches;
  words.gpu_share.store(
      share_.tick(words.gpu_ns.load(), words.job_times.ended.load(), host_ns, waited_ns));
  words.turn.connected.store(g_process.connected.load() ? 1 : 0);
  if (!client_.gate_closed()) note_coverage();
  const SliceRule::Slice slice = rule_.tick(client_.seat().board, client_.seat().slot, now_ns);
  wanted_.store(slice);
  const bool due = slice != set_now_.load() ||
                   changes_.load() != g_process.channel_groups.changes(client_.device());
  if (due) setter_.wake();
}

/// The mean of the last second or so.
void Slices::note_coverage() noexcept {
  constexpr std::uint32_t kTicks = 32;
  shm::Slot& words = client_.slot();
  shm::HalfWord& covered = words.turn.covered;
  const std::uint32_t sum = covered.load() * (kTicks - 1);
  covered.store((shm::has_job(words) ? sum + 1000 + kTicks - 1 : sum) / kTicks);
}

void Slices::apply() noexcept {
  const SliceRule::Slice slice = wanted_.load();
  const std::uint32_t changes = g_process.channel_groups.changes(client_.device());
  // What the driver has set need not be set.
  const bool due = slice.us != set_now_.load().us || (slice.us != 0 && changes != changes_.load());
  if (due) result_ = set_slice(client_.device(), slice.us);
  if (due && slice.us != 0) cannot_ = result_ != Result::kSet;
  changes_.store(changes);
  set_now_.store(slice);
  // Others take turns so that slices can be short. Here they cannot.
  const bool in_vain = slice.state == SliceState::kSeveral && (cannot_ || client_.under_mps());
  if (!in_vain && (slice.us == 0 || result_ == Result::kSet)) return show(slice);
  if (in_vain && client_.under_mps()) return show({0, SliceState::kNoGroup});
  if (result_ == Result::kNone) return show({0, SliceState::kNoGroup});
  if (!std::exchange(said_, true)) {
    Line(Level::kInfo) << "the system does not let this process set its time slices";
  }
  show({0, SliceState::kRefused});
}

void Slices::show(SliceRule::Slice slice) noexcept {
  client_.slot().slice_us.store(slice.us);
  client_.slot().slice_state.store(static_cast<std::uint32_t>(slice.state));
}

}  // namespace sluice::intercept
