// Which kernel has how many multiprocessors, and how fast it is with them. A context has one kernel
// at a time, so without MPS nothing runs next to it. A kernel takes what its grid fills and what
// its client may have, as far as they are free. It takes more when others give some back. Nothing
// takes any from a kernel that runs.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "simgpu/gpu/costs.hpp"
#include "simgpu/gpu/simulation.hpp"

namespace sluice::simgpu {
namespace {

// On how many multiprocessors the kernel is as fast as alone.
unsigned width_of(const Stream& stream) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>(stream.work.b, 1, kMultiprocessors));
}

unsigned most_of(const Stream& stream) {
  return std::min(width_of(stream), stream.client->most_multiprocessors);
}

bool takes_more(const Device& device, const Stream& stream) {
  if (stream.phase == Stream::Phase::kRunning) return stream.multiprocessors < most_of(stream);
  return stream.phase == Stream::Phase::kCompute &&
         std::none_of(device.running.begin(), device.running.end(),
                      [&](const Stream* running) { return running->context == stream.context; });
}

// Who takes free multiprocessors first.
bool goes_before(const Stream& a, const Stream& b) {
  const auto rank = [](const Stream& stream) {
    return std::tuple(stream.client->priority, stream.channel->priority.load(),
                      stream.requested_at);
  };
  return rank(a) < rank(b);
}

double speed_of(const Device& device, const Stream& stream) {
  const unsigned others = kMultiprocessors - device.free - stream.multiprocessors;
  const double share = static_cast<double>(others) / kMultiprocessors;
  return stream.multiprocessors / static_cast<double>(width_of(stream)) /
         (1 + cost::kSharedBandwidth * share);
}

}  // namespace

Nanoseconds Simulation::end_of(const Device& device, const Stream& stream) {
  constexpr double kRounding = 1e-6;
  const double left = stream.remaining / speed_of(device, stream);
  return device.settled_at + static_cast<Nanoseconds>(std::ceil(std::max(0.0, left - kRounding)));
}

// The stream of the loaded group that takes free multiprocessors next, and when.
Stream* Simulation::next_taker(const Device& device, Nanoseconds& at) {
  at = kNever;
  if (device.free == 0 || device.loaded == nullptr) return nullptr;
  const auto for_each_taker = [&](auto&& visit) {
    for_each_stream([&](Stream& stream) {
      if (!takes_more(device, stream) || stream.context->group.get() != device.loaded) return;
      if (&devices_[stream.context->device] != &device) return;
      visit(stream, std::max(device.free_at, stream.requested_at));
    });
  };
  for_each_taker([&](Stream&, Nanoseconds when) { at = std::min(at, when); });
  Stream* found = nullptr;
  for_each_taker([&](Stream& stream, Nanoseconds when) {
    if (when == at && (found == nullptr || goes_before(stream, *found))) found = &stream;
  });
  return found;
}

void Simulation::settle(Device& device, Nanoseconds at) {
  const auto passed = static_cast<double>(at - device.settled_at);
  for (Stream* stream : device.running) {
    stream->remaining = std::max(0.0, stream->remaining - passed * speed_of(device, *stream));
  }
  device.settled_at = at;
}

void Simulation::give(Device& device, Stream& stream, Nanoseconds at) {
  settle(device, at);
  if (stream.phase != Stream::Phase::kRunning) {
    if (stream.begun_at == 0) stream.begun_at = at;
    stream.phase = Stream::Phase::kRunning;
    device.running.push_back(&stream);
  }
  const unsigned given = std::min(device.free, most_of(stream) - stream.multiprocessors);
  stream.multiprocessors += given;
  device.free -= given;
}

void Simulation::take_back(Device& device, Stream& stream, Nanoseconds at) {
  settle(device, at);
  std::erase(device.running, &stream);
  device.free += stream.multiprocessors;
  device.free_at = at;
  stream.multiprocessors = 0;
}

}  // namespace sluice::simgpu
