// Who uses the GPU, and what must hold of time slices. By what has happened, without a function of
// the interposer.
#include <algorithm>

#include "shm/policy.hpp"
#include "shm/slice.hpp"
#include "tests/simulation/world.hpp"

namespace sluice::simulation {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kLookNs = 5 * kMs;
/// Until a change of what others do is known and a slice is set, which may take 0.1 s.
constexpr std::uint64_t kSettleNs = 1'000 * kMs;

}  // namespace

bool World::runs_on_gpu(const Process& process) const {
  return std::any_of(process.streams.begin(), process.streams.end(), [](const GpuStream& stream) {
    return !stream.items.empty() && stream.begun_ns != 0 &&
           stream.items.front().kind == GpuStream::Item::Kind::kKernel;
  });
}

/// After each step of the time: nothing has begun or ended since the last one.
void World::count_use() {
  const std::uint64_t now = fibers.now_ns;
  const std::uint64_t passed = now - std::exchange(counted_ns_, now);
  for (const auto& process : processes) {
    if (!process->gone) process->use.add(runs_on_gpu(*process) ? passed : 0, now);
  }
  if (now < slices_ns_ + kLookNs) return;
  look_at_slices(now - std::exchange(slices_ns_, now));
}

void World::look_at_slices(std::uint64_t passed) {
  for (const auto& process : processes) {
    if (process->killed || process->exited || slot_of(*process) < 0) continue;
    look_at_slice(*process, passed);
    look_at_several(*process, passed);
    look_at_share(*process, passed);
  }
}

/// Nobody makes others wait for longer than the driver does, and what status says is true.
void World::look_at_slice(Process& process, std::uint64_t passed) {
  const shm::Slot& own = slot(slot_of(process));
  const std::uint64_t now = fibers.now_ns;
  const bool settled = now > std::max(process.slice_ns, process.ran_since_ns) + kSettleNs;
  const auto fault = [&](const char* what) { broken(what + std::to_string(process.pid)); };
  const auto count = [&](std::uint64_t& sum_ns, bool is) {
    sum_ns = is ? sum_ns + passed : sum_ns - std::min(sum_ns, passed / 4);
    return sum_ns > kSettleNs;
  };
  const std::size_t device = shm::SlotInfo::unpack(own.info.load()).device;  // as the board has it
  const auto outside = shm::OutsideWord::unpack(board.devices[device].outside.load());
  const bool outside_known = settled && now > outside_ns_[device] + kSettleNs;
  const bool is_long = process.slice_us > shm::kDriversSliceUs && !process.long_slices;
  const auto pays = [&](const auto& other) {
    const int index = slot_of(*other);
    if (other.get() == &process || other->device != process.device || index < 0) return false;
    const std::uint64_t holder = std::uint64_t{1} << static_cast<unsigned>(slot_of(process));
    const bool held = (slot(index).gate.load() & holder) != 0 &&
                      shm::Policy::unpack(slot(index).policy.load()).kind != shm::PolicyKind::kNone;
    return !held && runs_on_gpu(*other) && other->use.of_last(3) > 1'000 * kMs;
  };
  const bool all_pay = is_long && outside_known && outside != shm::OutsideWord{};
  if (count(process.long_ns, all_pay)) fault("a long slice next to a program outside: ");
  const bool one_pays = is_long && settled && runs_on_gpu(process) &&
                        std::any_of(processes.begin(), processes.end(), pays);
  if (count(process.paid_ns, one_pays)) fault("others pay for a long slice: ");
  const bool is_short = process.slice_us != 0 && process.slice_us < shm::kDriversSliceUs &&
                        own.requested_slice.load() == shm::kSliceAuto;
  const bool harms_itself = is_short && outside_known && outside.busy != 0;
  if (count(process.short_ns, harms_itself))
    fault("a short slice next to a busy program outside: ");
  const auto state = static_cast<shm::SliceState>(own.slice_state.load());
  const bool untrue = settled && state != shm::SliceState::kRefused &&
                      state != shm::SliceState::kUnknown && own.slice_us.load() != process.slice_us;
  if (count(process.untrue_ns, untrue)) fault("status shows another slice than the driver has: ");
}

/// Who uses less than 1 % of the GPU is not one of several that use it. A job whose work has not
/// been measured is taken for use (OwnUse::kUnknownNs), until two seconds after that.
void World::look_at_several(Process& process, std::uint64_t passed) {
  const shm::Slot& own = slot(slot_of(process));
  const auto state = static_cast<shm::SliceState>(own.slice_state.load());
  constexpr std::uint64_t kPercentNs = UseBySecond::kSecondNs / 100;
  constexpr std::uint64_t kUnknownNs = 12'000 * kMs;
  const auto uses = [&](const Process& each) {
    const int its = slot_of(each);
    const bool unknown =
        its >= 0 && shm::has_job(slot(its)) && fibers.now_ns < each.progress_ns + kUnknownNs;
    return unknown || each.use.of_last(5) >= 5 * kPercentNs ||
           each.use.of_last(12) >= 12 * kPercentNs;
  };
  int users = 0;
  bool known = true;
  for (const auto& other : processes) {
    if (other->device != process.device || other->gone) continue;
    known = known && other->gpu_time;
    if (uses(*other)) ++users;
  }
  const bool wrong = known && state == shm::SliceState::kSeveral && users < 2 &&
                     fibers.now_ns > process.ran_since_ns + kSettleNs;
  process.several_ns = wrong ? process.several_ns + passed : 0;
  if (process.several_ns > kSettleNs)
    broken("several are said to be busy: " + std::to_string(process.pid));
}

}  // namespace sluice::simulation
