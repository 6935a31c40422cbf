// Chooses the context and the kernel that a device runs: one kernel at a time, contexts in time
// slices. A context without work gives the device away at once. While no other context wants the
// device, the last one stays loaded and resumes without a switch.
#include <algorithm>

#include "simgpu/gpu/costs.hpp"
#include "simgpu/gpu/simulation.hpp"

namespace sluice::simgpu {
namespace {

bool goes_before(const Stream& a, const Stream* b) {
  return b == nullptr || a.requested_at < b->requested_at;
}

}  // namespace

Stream* Simulation::earliest_request(const Device& device, bool of_loaded) {
  Stream* found = nullptr;
  for_each_stream([&](Stream& stream) {
    if (stream.phase != Stream::Phase::kCompute) return;
    if (&devices_[stream.context->device] != &device) return;
    if ((stream.context == device.loaded) != of_loaded) return;
    if (goes_before(stream, found)) found = &stream;
  });
  if (found == nullptr || !of_loaded) return found;
  // Within a context, the stream priority decides between kernels that are ready at the same time.
  const Nanoseconds start = std::max(device.free_at, found->requested_at);
  for_each_stream([&](Stream& stream) {
    if (stream.phase != Stream::Phase::kCompute || stream.context != device.loaded) return;
    if (stream.requested_at > start) return;
    if (stream.channel->priority < found->channel->priority) found = &stream;
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

// A wait of 2.4 us between two kernels is no reason to switch contexts.
bool Simulation::loaded_is_between_kernels(const Device& device) {
  bool between = false;
  for_each_stream([&](const Stream& stream) {
    const bool memory_operation =
        stream.work.op == Op::kWaitValue || stream.work.op == Op::kWriteValue;
    between |= stream.phase == Stream::Phase::kTimed && memory_operation &&
               stream.context == device.loaded;
  });
  return between;
}

Simulation::Choice Simulation::choose(const Device& device) {
  Stream* other = earliest_request(device, false);
  return device.running != nullptr ? choose_while_running(device, other)
                                   : choose_while_idle(device, other);
}

Simulation::Choice Simulation::choose_while_running(const Device& device, Stream* other) {
  const Nanoseconds end = device.run_start + device.running->remaining;
  if (other != nullptr) {
    const Nanoseconds slice_end =
        std::max(device.run_start, slice_end_after(device, other->requested_at));
    if (slice_end < end) return {slice_end, Choice::Action::kPreempt, other};
  }
  return {end, Choice::Action::kEnd, device.running};
}

Simulation::Choice Simulation::choose_while_idle(const Device& device, Stream* other) {
  Stream* own = earliest_request(device, true);
  const Nanoseconds own_at = own ? std::max(device.free_at, own->requested_at) : kNever;
  if (other == nullptr) return own ? Choice{own_at, Choice::Action::kRun, own} : Choice{};
  // Not before this instant: the kernel behind a wait that has just passed goes first.
  const Nanoseconds other_at = std::max({device.free_at, other->requested_at, instant_});
  const Nanoseconds slice_end = slice_end_after(device, other->requested_at);
  if (own_at <= other_at && own_at < slice_end) return {own_at, Choice::Action::kRun, own};
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
  if (device.loaded != stream.context || earliest_request(device, false) != nullptr) return;
  device.slice_end = std::max(device.slice_end, at + device.loaded->slice);
}

// The context that runs has at most the new slice left: the GPU obeys at once.
bool Simulation::set_slice(Client& client, std::uint32_t id, std::uint64_t us, Nanoseconds now) {
  constexpr std::uint64_t kMostUs = 1'000'000;
  const auto found = client.contexts.find(id);
  if (found == client.contexts.end() || us > kMostUs) return false;
  Context& context = *found->second;
  context.slice = scaled(us == 0 ? cost::kSlice : static_cast<double>(us) * 1000);
  Device& device = devices_[context.device];
  if (device.loaded == &context) device.slice_end = std::min(device.slice_end, now + context.slice);
  return true;
}

void Simulation::switch_to(Device& device, const Stream& stream, Nanoseconds at) {
  const Nanoseconds done = device.used ? at + scaled(cost::kSwitch) : at;
  device.used = true;
  device.loaded = stream.context;
  device.free_at = done;
  device.slice_end = done + stream.context->slice;
  log_.context_switch(*stream.client, at, done);
}

void Simulation::carry_out(Device& device, const Choice& choice) {
  Stream& stream = *choice.stream;
  switch (choice.action) {
    case Choice::Action::kNone:
      break;
    case Choice::Action::kRun:
      if (stream.begun_at == 0) stream.begun_at = choice.at;
      stream.phase = Stream::Phase::kRunning;
      device.running = &stream;
      device.run_start = choice.at;
      break;
    case Choice::Action::kSwitch:
      switch_to(device, stream, choice.at);
      break;
    case Choice::Action::kPreempt: {
      Stream& preempted = *device.running;
      preempted.remaining -= choice.at - device.run_start;
      preempted.requested_at = choice.at;
      preempted.phase = Stream::Phase::kCompute;
      device.running = nullptr;
      switch_to(device, stream, choice.at);
      break;
    }
    case Choice::Action::kEnd:
      device.running = nullptr;
      device.free_at = choice.at;
      finish_work(stream, choice.at);
      break;
  }
}

}  // namespace sluice::simgpu
