#include "simgpu/gpu/simulation.hpp"

#include <algorithm>

namespace sluice::simgpu {

Simulation::Simulation(double scale, unsigned devices, EventLog log)
    : scale_(scale), devices_(devices), log_(std::move(log)) {}

Client& Simulation::add_client(std::unique_ptr<Client> client) {
  clients_.push_back(std::move(client));
  return *clients_.back();
}

void Simulation::forget(Stream& stream, Nanoseconds at) {
  for (Device& device : devices_) {
    if (std::find(device.running.begin(), device.running.end(), &stream) == device.running.end()) {
      continue;
    }
    take_back(device, stream, std::max(device.settled_at, at));
  }
}

void Simulation::drop_client(Client& client) {
  for (auto& stream : client.streams) forget(*stream, now_);
  for (auto& [id, context] : client.contexts) unload(*context);
  if (client.area() != nullptr) client.area()->gone = 1;
  std::erase_if(clients_, [&](const auto& other) { return other.get() == &client; });
}

bool Simulation::create_context(Client& client, std::uint32_t id, std::uint64_t device) {
  if (device >= devices_.size()) return false;
  auto context = std::make_unique<Context>();
  context->id = id;
  context->device = static_cast<unsigned>(device);
  context->group = group_of_new_context(client, context->device);
  return client.contexts.try_emplace(id, std::move(context)).second;
}

void Simulation::destroy_context(Client& client, std::uint32_t id) {
  find_streams(client);
  for (auto& stream : client.streams) {
    const Channel& channel = *stream->channel;
    if (channel.context == id && channel.state != ChannelState::kFree) drop_work(*stream, now_);
  }
  const auto found = client.contexts.find(id);
  if (found == client.contexts.end()) return;
  unload(*found->second);
  client.contexts.erase(found);
}

// The context ends, and its group unless other contexts belong to it.
void Simulation::unload(Context& context) {
  Device& device = devices_[context.device];
  const bool is_last = context.group.use_count() == 1;
  if (is_last && device.loaded == context.group.get()) device.loaded = nullptr;
  context.group.reset();
}

Simulation::Outlook Simulation::advance(Nanoseconds now) {
  now_ = std::max(now_, now);
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
