#include "simgpu/gpu/simulation.hpp"

#include <algorithm>

#include "base/futex.hpp"
#include "simgpu/gpu/costs.hpp"

namespace sluice::simgpu {

Simulation::Simulation(double scale, unsigned devices, EventLog log)
    : scale_(scale), devices_(devices), log_(std::move(log)) {}

Client& Simulation::add_client(std::unique_ptr<Client> client) {
  clients_.push_back(std::move(client));
  return *clients_.back();
}

void Simulation::forget(Stream& stream) {
  for (Device& device : devices_) {
    if (device.running != &stream) continue;
    device.running = nullptr;
    device.free_at = std::max(device.run_start, instant_);
  }
}

void Simulation::drop_client(Client& client) {
  for (auto& stream : client.streams) forget(*stream);
  for (Device& device : devices_) {
    for (auto& [id, context] : client.contexts) {
      if (device.loaded == context.get()) device.loaded = nullptr;
    }
  }
  if (client.area() != nullptr) client.area()->gone = 1;
  std::erase_if(clients_, [&](const auto& other) { return other.get() == &client; });
}

bool Simulation::create_context(Client& client, std::uint32_t id, std::uint64_t device) {
  if (device >= devices_.size()) return false;
  auto context = std::make_unique<Context>();
  context->id = id;
  context->device = static_cast<unsigned>(device);
  context->slice = scaled(cost::kSlice);
  return client.contexts.try_emplace(id, std::move(context)).second;
}

void Simulation::destroy_context(Client& client, std::uint32_t id) {
  find_streams(client);
  for (auto& stream : client.streams) {
    Channel& channel = *stream->channel;
    if (channel.context != id || channel.state == ChannelState::kFree) continue;
    forget(*stream);
    stream->fetched = false;
    stream->phase = Stream::Phase::kFetch;
    stream->context = nullptr;
    channel.completed = channel.submitted.load();
    channel.wanted = kNothingWanted;
    channel.wake.fetch_add(1);
    base::futex_wake_all(channel.wake);
  }
  const auto found = client.contexts.find(id);
  if (found == client.contexts.end()) return;
  for (Device& device : devices_) {
    if (device.loaded == found->second.get()) device.loaded = nullptr;
  }
  client.contexts.erase(found);
}

Simulation::Outlook Simulation::advance(Nanoseconds now) {
  for (auto& client : clients_) find_streams(*client);
  poll_parked(now);
  Outlook outlook;
  for (;;) {
    Stream* stream = nullptr;
    Nanoseconds at = kNever;
    for_each_stream([&](Stream& candidate) {
      const Nanoseconds next = next_of(candidate);
      if (next < at) {
        at = next;
        stream = &candidate;
      }
    });
    // At equal times streams go first: the kernel queued behind one that ends now must be visible
    // before the device chooses other work.
    Device* device = nullptr;
    Choice choice;
    for (Device& candidate : devices_) {
      const Choice next = choose(candidate);
      if (next.at >= std::min(at, choice.at)) continue;
      choice = next;
      device = &candidate;
    }
    outlook.next = std::min(at, choice.at);
    if (outlook.next > now) break;
    instant_ = std::max(instant_, outlook.next);
    if (device != nullptr) {
      carry_out(*device, choice);
    } else {
      fire(*stream, at);
    }
  }
  for_each_stream(
      [&](Stream& stream) { outlook.parked |= stream.phase == Stream::Phase::kParked; });
  outlook.parked_since = latest_park_;
  return outlook;
}

}  // namespace sluice::simgpu
