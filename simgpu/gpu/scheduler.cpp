// Chooses the channel group and the kernels that a device runs, groups in time slices. A group
// without work gives the device away at once. While no other group wants the device, the last one
// stays loaded and resumes without a switch.
#include <algorithm>

#include "simgpu/gpu/costs.hpp"
#include "simgpu/gpu/simulation.hpp"

namespace sluice::simgpu {
namespace {

bool goes_before(const Stream& a, const Stream* b) {
  return b == nullptr || a.requested_at < b->requested_at;
}

}  // namespace

Stream* Simulation::earliest_request_of_others(const Device& device) {
  Stream* found = nullptr;
  for_each_stream([&](Stream& stream) {
    if (stream.phase != Stream::Phase::kCompute) return;
    if (&devices_[stream.context->device] != &device) return;
    if (stream.context->group.get() == device.loaded) return;
    if (goes_before(stream, found)) found = &stream;
  });
  return found;
}

// Slices continue while no other context wants the device, so a request arrives at a random point
// of the current slice.
Nanoseconds Simulation::slice_end_after(const Device& device, Nanoseconds request) const {
  if (device.slice_end > request || device.loaded == nullptr) return device.slice_end;
  const Nanoseconds slice = device.loaded->slice;
  return device.slice_end + ((request - device.slice_end) / slice + 1) * slice;
}

// A wait of 2.4 us between two kernels is no reason to switch, nor is the tail of a kernel.
bool Simulation::loaded_is_between_kernels(const Device& device) {
  bool between = false;
  for_each_stream([&](const Stream& stream) {
    const Op op = stream.work.op;
    const bool short_work = op == Op::kWaitValue || op == Op::kWriteValue || op == Op::kKernel;
    between |= stream.phase == Stream::Phase::kTimed && short_work && stream.context != nullptr &&
               stream.context->group.get() == device.loaded;
  });
  return between;
}

Simulation::Choice Simulation::choose(const Device& device) {
  const Choice own = choose_of_loaded(device);
  Stream* other = earliest_request_of_others(device);
  if (other == nullptr) return own;
  if (device.running.empty()) return choose_while_idle(device, own, other);
  const Nanoseconds slice_end =
      std::max(device.settled_at, slice_end_after(device, other->requested_at));
  const bool before_own =
      own.action == Choice::Action::kEnd ? slice_end < own.at : slice_end <= own.at;
  return before_own ? Choice{slice_end, Choice::Action::kPreempt, other} : own;
}

// What happens next if no other group wants the device.
Simulation::Choice Simulation::choose_of_loaded(const Device& device) {
  Choice choice;
  for (Stream* stream : device.running) {
    const Nanoseconds end = end_of(device, *stream);
    if (end < choice.at) choice = {end, Choice::Action::kEnd, stream};
  }
  Nanoseconds taken_at = kNever;
  Stream* taker = next_taker(device, taken_at);
  if (taker == nullptr) return choice;
  taken_at = std::max(taken_at, device.settled_at);
  return taken_at < choice.at ? Choice{taken_at, Choice::Action::kRun, taker} : choice;
}

Simulation::Choice Simulation::choose_while_idle(const Device& device, const Choice& own,
                                                 Stream* other) {
  // Not before this instant: the kernel behind a wait that has just passed goes first.
  const Nanoseconds other_at = std::max({device.free_at, other->requested_at, instant_});
  const Nanoseconds slice_end = slice_end_after(device, other->requested_at);
  if (own.at <= other_at && own.at < slice_end) return own;
  if (device.loaded != nullptr && loaded_is_between_kernels(device)) {
    return {std::max(other_at, slice_end), Choice::Action::kSwitch, other};
  }
  return {other_at, Choice::Action::kSwitch, other};
}

// When a wait ends and no other context wants the device, the slice of the stream's context starts
// again. This was inferred from the H200: 1000 us kernels with a wait before each delay another
// context by 599 / 1129 us (p50 / p99), which is one kernel and a switch. They are never cut short
// by the end of a slice, as kernels without waits are. Slices that run on would give 490 us.
void Simulation::restart_slice(const Stream& stream, Nanoseconds at) {
  if (stream.context == nullptr) return;
  Device& device = devices_[stream.context->device];
  if (device.loaded != stream.context->group.get()) return;
  if (earliest_request_of_others(device) != nullptr) return;
  device.slice_end = std::max(device.slice_end, at + device.loaded->slice);
}

// The group that runs has at most the new slice left: the GPU obeys at once. A client of MPS has no
// group of its own.
bool Simulation::set_slice(Client& client, std::uint32_t id, std::uint64_t us, Nanoseconds now) {
  constexpr std::uint64_t kMostUs = 1'000'000;
  const auto found = client.contexts.find(id);
  if (found == client.contexts.end() || us > kMostUs || client.server) return false;
  ChannelGroup& group = *found->second->group;
  group.slice = scaled(us == 0 ? cost::kSlice : static_cast<double>(us) * 1000);
  Device& device = devices_[found->second->device];
  if (device.loaded == &group) device.slice_end = std::min(device.slice_end, now + group.slice);
  return true;
}

void Simulation::switch_to(Device& device, const Stream& stream, Nanoseconds at) {
  const Nanoseconds done = device.used ? at + scaled(cost::kSwitch) : at;
  device.used = true;
  device.loaded = stream.context->group.get();
  device.free_at = done;
  device.slice_end = done + device.loaded->slice;
  log_.context_switch(*stream.client, at, done);
}

void Simulation::carry_out(Device& device, const Choice& choice) {
  Stream& stream = *choice.stream;
  switch (choice.action) {
    case Choice::Action::kNone:
      break;
    case Choice::Action::kRun:
      give(device, stream, choice.at);
      break;
    case Choice::Action::kSwitch:
      switch_to(device, stream, choice.at);
      break;
    case Choice::Action::kPreempt:
      while (!device.running.empty()) {
        Stream& preempted = *device.running.back();
        take_back(device, preempted, choice.at);
        preempted.requested_at = choice.at;
        preempted.phase = Stream::Phase::kCompute;
      }
      switch_to(device, stream, choice.at);
      break;
    case Choice::Action::kEnd:
      take_back(device, stream, choice.at);
      if (stream.tail == 0) return finish_kernel(stream, choice.at);
      stream.phase = Stream::Phase::kTimed;
      stream.until = choice.at + stream.tail;
      break;
  }
}

}  // namespace sluice::simgpu
