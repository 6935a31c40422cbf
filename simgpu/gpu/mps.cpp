// MPS: processes that are clients of one server share a channel group on each device, and faults.
#include <algorithm>

#include "base/futex.hpp"
#include "simgpu/channel/mps_folder.hpp"
#include "simgpu/gpu/costs.hpp"
#include "simgpu/gpu/simulation.hpp"

namespace sluice::simgpu {
namespace {

// The GPU process does not include cuda.h.
constexpr std::int32_t kIllegalAddress = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
constexpr std::int32_t kRpcFailure = 806;      // CUDA_ERROR_MPS_RPC_FAILURE

bool uses(const Client& client, unsigned device) {
  return std::any_of(client.contexts.begin(), client.contexts.end(),
                     [&](const auto& entry) { return entry.second->device == device; });
}

}  // namespace

bool Simulation::join_mps(Client& client, const Request& request) {
  if (client.server || !client.contexts.empty() || request.a == 0) return false;
  const std::vector<std::shared_ptr<MpsServer>> servers = mps_servers();
  const auto found = std::find_if(servers.begin(), servers.end(), [&](const auto& server) {
    return server->identity == request.a;
  });
  std::shared_ptr<MpsServer> server = found == servers.end() ? nullptr : *found;
  if (!server) {
    server = std::make_shared<MpsServer>();
    server->identity = request.a;
    server->daemon = open_process(static_cast<pid_t>(request.c));
  }
  if (server->faulted) return false;
  client.server = std::move(server);
  client.priority = request.id;
  client.most_multiprocessors =
      static_cast<unsigned>(std::clamp<std::uint64_t>(request.b, 1, kMultiprocessors));
  return true;
}

std::vector<std::shared_ptr<MpsServer>> Simulation::mps_servers() const {
  std::vector<std::shared_ptr<MpsServer>> found;
  for (const auto& client : clients_) {
    if (client->server && std::find(found.begin(), found.end(), client->server) == found.end()) {
      found.push_back(client->server);
    }
  }
  return found;
}

void Simulation::end_server(MpsServer& server) {
  server.faulted = true;
  server.daemon = base::Fd();
  for (const auto& client : clients_) {
    if (client->server.get() == &server) end_all_work(*client, kRpcFailure, now_);
  }
}

std::shared_ptr<ChannelGroup> Simulation::group_of_new_context(Client& client, unsigned device) {
  std::shared_ptr<ChannelGroup> group;
  if (client.server) group = client.server->groups[device].lock();
  if (group) return group;
  group = std::make_shared<ChannelGroup>();
  group->slice = scaled(cost::kSlice);
  group->of_mps = client.server != nullptr;
  if (client.server) client.server->groups[device] = group;
  return group;
}

// Measured on an H200 (driver 580, 2026-11): after an illegal address of one client, the other
// client's calls return the same error. Clients that do not use the device go on (NVIDIA's
// documentation of MPS, "Error containment").
void Simulation::fault(Client& client, unsigned device) {
  if (!client.server) return end_all_work(client, kIllegalAddress, instant_);
  client.server->faulted = true;
  for (const auto& other : clients_) {
    if (other->server == client.server && uses(*other, device)) {
      end_all_work(*other, kIllegalAddress, instant_);
    }
  }
}

// The error first: whoever wakes must find it.
void Simulation::end_all_work(Client& client, std::int32_t error, Nanoseconds at) {
  if (client.faulted || client.area() == nullptr) return;
  client.faulted = true;
  client.area()->fault = error;
  find_streams(client);
  for (const auto& stream : client.streams) drop_work(*stream, at);
}

void Simulation::drop_work(Stream& stream, Nanoseconds at) {
  forget(stream, at);
  stream.fetched = false;
  stream.phase = Stream::Phase::kFetch;
  stream.context = nullptr;
  Channel& channel = *stream.channel;
  channel.completed = channel.submitted.load();
  channel.wanted = kNothingWanted;
  channel.wake.fetch_add(1);
  base::futex_wake_all(channel.wake);
}

}  // namespace sluice::simgpu
