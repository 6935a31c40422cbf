// The commands of one stream, in order.
#include <algorithm>

#include "base/futex.hpp"
#include "simgpu/gpu/costs.hpp"
#include "simgpu/gpu/simulation.hpp"

namespace sluice::simgpu {
namespace {

// Implements CUstreamWaitValue_flags, because the GPU process does not include cuda.h.
bool holds(std::uint64_t found, std::uint64_t wanted, unsigned width, unsigned flags) {
  if (width == 4) {
    found &= 0xffffffffU;
    wanted &= 0xffffffffU;
  }
  const std::uint64_t mask = width == 4 ? 0xffffffffU : ~std::uint64_t{0};
  switch (flags & 3U) {
    case 0:
      return width == 4 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(found - wanted)) >= 0
                        : static_cast<std::int64_t>(found - wanted) >= 0;
    case 1:
      return found == wanted;
    case 2:
      return (found & wanted) != 0;
    default:
      return (~(found | wanted) & mask) != 0;
  }
}

bool is_kernel_like(Op op) { return op == Op::kKernel || op == Op::kGraph || op == Op::kCopy; }

}  // namespace

void Simulation::find_streams(Client& client) {
  if (client.area() == nullptr) return;
  const std::size_t used = std::min<std::size_t>(client.area()->channels.load(), kMaxChannels);
  while (client.streams.size() < used) {
    auto stream = std::make_unique<Stream>();
    stream->client = &client;
    stream->channel = &client.area()->ring.at(client.streams.size());
    client.streams.push_back(std::move(stream));
  }
}

bool Simulation::fetch(Stream& stream) {
  if (stream.fetched) return true;
  Channel& channel = *stream.channel;
  const std::uint64_t done = channel.completed.load(std::memory_order_relaxed);
  if (channel.submitted.load() == done) return false;
  if (stream.client->faulted) {  // submitted at the same time
    drop_work(stream, instant_);
    return false;
  }
  stream.command = channel.ring.at(done % kRingSize);
  stream.kind = channel.kind;
  const auto context = stream.client->contexts.find(channel.context);
  stream.context = context == stream.client->contexts.end() ? nullptr : context->second.get();
  stream.work = stream.command.work;
  stream.node = 0;
  stream.graph.reset();
  if (stream.work.op == Op::kGraph) {
    const auto graph = stream.client->graphs.find(stream.work.a);
    if (graph != stream.client->graphs.end()) stream.graph = graph->second;
  }
  stream.fetched = true;
  stream.was_blocked = false;
  return true;
}

Nanoseconds Simulation::next_of(Stream& stream) {
  switch (stream.phase) {
    case Stream::Phase::kFetch:
      return fetch(stream) ? start_time(stream) : kNever;
    case Stream::Phase::kTimed:
      return stream.until;
    default:
      return kNever;
  }
}

double Simulation::submit_latency(const Stream& stream) const {
  if (!is_kernel_like(stream.work.op)) return cost::kSubmit;
  const bool was_idle = stream.command.submit_ns > stream.ready_at + scaled(cost::kIdle);
  return was_idle ? cost::kLaunch + cost::kLaunchAfterIdle : cost::kLaunch;
}

Nanoseconds Simulation::start_time(Stream& stream) {
  Nanoseconds start = stream.ready_at;
  if (stream.node == 0) {
    start = std::max(start, stream.command.submit_ns + scaled(submit_latency(stream)));
  }
  if (must_wait_for_another(stream)) {
    stream.was_blocked = true;
    return kNever;
  }
  return stream.was_blocked ? std::max(start, instant_) : start;
}

bool Simulation::must_wait_for_another(Stream& stream) {
  if (stream.work.op == Op::kEventWait && stream.work.index < kMaxEvents) {
    const EventSlot& event = stream.client->area()->events.at(stream.work.index);
    if (event.done.load() < stream.work.a) return true;
  }
  return stream.node == 0 && behind_legacy_barrier(stream);
}

// The legacy default stream runs after everything submitted earlier to the blocking streams of its
// context, and the blocking streams run after everything submitted earlier to it.
bool Simulation::behind_legacy_barrier(Stream& stream) {
  if (stream.kind == ChannelKind::kNonBlocking) return false;
  const std::uint32_t context = stream.channel->context;
  return std::any_of(
      stream.client->streams.begin(), stream.client->streams.end(), [&](auto& pointer) {
        Stream& other = *pointer;
        if (&other == &stream || other.channel->context != context || !fetch(other)) return false;
        if (other.kind == ChannelKind::kNonBlocking) return false;
        const bool one_is_legacy =
            stream.kind == ChannelKind::kLegacy || other.kind == ChannelKind::kLegacy;
        return one_is_legacy && other.command.order < stream.command.order;
      });
}

void Simulation::fire(Stream& stream, Nanoseconds at) {
  if (stream.phase == Stream::Phase::kFetch) {
    begin(stream, at);
  } else {
    end_timed(stream, at);
  }
}

void Simulation::begin(Stream& stream, Nanoseconds at) {
  if (stream.work.op == Op::kGraph) {
    stream.graph_begun_at = at;
    if (!stream.graph || stream.graph->empty()) return finish_command(stream, at);
    stream.work = stream.graph->front();
    stream.ready_at = at;
  }
  stream.begun_at = at;
  const auto timed = [&](double cost) {
    stream.phase = Stream::Phase::kTimed;
    stream.until = at + scaled(cost);
  };
  switch (stream.work.op) {
    case Op::kKernel:
      if (stream.context == nullptr) return finish_work(stream, at);
      request_multiprocessors(stream, at);
      break;
    case Op::kCopy:
      timed(cost::kCopyStart +
            static_cast<double>(stream.work.c) * ((stream.work.flags & kCopyAcrossBus) != 0
                                                      ? cost::kNsPerByteAcrossBus
                                                      : cost::kNsPerByteOnDevice));
      break;
    case Op::kFill:
      timed(cost::kCopyStart +
            static_cast<double>(stream.work.c * stream.work.width) * cost::kNsPerByteOnDevice);
      break;
    case Op::kWaitValue:
      timed(stream.graph ? cost::kWaitValueInGraph : cost::kWaitValue);
      break;
    case Op::kWriteValue:
      timed(cost::kWriteValue);
      break;
    case Op::kHostCall:
      call_host(stream);
      break;
    case Op::kEventRecord:
      if (stream.work.index < kMaxEvents) {
        EventSlot& event = stream.client->area()->events.at(stream.work.index);
        // The slot may already belong to a later event.
        if (event.done < stream.work.a) {
          event.time_ns = at;
          event.done = stream.work.a;
        }
      }
      [[fallthrough]];
    default:
      finish_work(stream, at);
  }
}

void Simulation::request_multiprocessors(Stream& stream, Nanoseconds at) {
  const Nanoseconds duration = scaled(static_cast<double>(stream.work.a));
  stream.phase = Stream::Phase::kCompute;
  stream.requested_at = at;
  stream.tail = stream.context->group->of_mps ? std::min(scaled(cost::kTail), duration / 2) : 0;
  stream.remaining = static_cast<double>(duration - stream.tail);
  stream.begun_at = 0;
}

void Simulation::call_host(Stream& stream) {
  Channel& channel = *stream.channel;
  stream.phase = Stream::Phase::kHost;
  channel.host_function = stream.work.a;
  channel.host_argument = stream.work.b;
  channel.host_due.fetch_add(1);
  Area& area = *stream.client->area();
  area.host_calls.fetch_add(1);
  base::futex_wake_all(area.host_calls);
}

bool Simulation::value_is_there(Stream& stream) {
  std::uint64_t found = 0;
  // Memory that no longer exists must not park a stream indefinitely.
  if (!stream.client->memory.load(stream.work.a, stream.work.width, found)) return true;
  return holds(found, stream.work.b, stream.work.width, stream.work.flags);
}

void Simulation::end_timed(Stream& stream, Nanoseconds at) {
  AddressSpace& memory = stream.client->memory;
  const Work& work = stream.work;
  switch (work.op) {
    case Op::kWaitValue:
      if (!value_is_there(stream)) {
        stream.phase = Stream::Phase::kParked;
        latest_park_ = std::max(latest_park_, at);
        return;
      }
      restart_slice(stream, at);
      break;
    case Op::kWriteValue:
      memory.store(work.a, work.width, work.b);
      break;
    case Op::kCopy:
      if ((work.flags & kCopyTimeOnly) == 0) memory.copy(work.a, work.b, work.c);
      break;
    case Op::kFill:
      memory.fill(work.a, work.b, work.width, work.c);
      break;
    case Op::kKernel:
      return finish_kernel(stream, at);
    default:
      break;
  }
  finish_work(stream, at);
}

void Simulation::poll_parked(Nanoseconds now) {
  for_each_stream([&](Stream& stream) {
    if (stream.phase == Stream::Phase::kParked && value_is_there(stream)) {
      stream.phase = Stream::Phase::kTimed;
      stream.until = now;
    } else if (stream.phase == Stream::Phase::kHost &&
               stream.channel->host_done.load() == stream.channel->host_due.load()) {
      finish_work(stream, now);
    }
  });
}

// The kernel that faults does not complete: whoever waits for it must find the error.
void Simulation::finish_kernel(Stream& stream, Nanoseconds at) {
  if ((stream.work.flags & kFaults) == 0) return finish_work(stream, at);
  log_.work(stream, at);
  fault(*stream.client, stream.context->device);
}

void Simulation::finish_work(Stream& stream, Nanoseconds at) {
  log_.work(stream, at);
  stream.phase = Stream::Phase::kFetch;
  stream.ready_at = at;
  stream.was_blocked = false;
  if (stream.graph && ++stream.node < stream.graph->size()) {
    stream.work = stream.graph->at(stream.node);
    return;
  }
  finish_command(stream, at);
}

void Simulation::finish_command(Stream& stream, Nanoseconds at) {
  if (stream.command.work.op == Op::kGraph) log_.graph(stream, at);
  stream.phase = Stream::Phase::kFetch;
  stream.ready_at = at;
  stream.fetched = false;
  stream.graph.reset();
  Channel& channel = *stream.channel;
  const std::uint64_t done = channel.completed.load(std::memory_order_relaxed) + 1;
  channel.completed.store(done);
  if (channel.wanted.load() > done) return;
  channel.wanted = kNothingWanted;
  channel.wake.fetch_add(1);
  base::futex_wake_all(channel.wake);
}

}  // namespace sluice::simgpu
