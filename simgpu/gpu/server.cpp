#include "simgpu/gpu/server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "simgpu/channel/mps_folder.hpp"
#include "simgpu/channel/packet.hpp"

namespace sluice::simgpu {
namespace {

constexpr Nanoseconds kMillisecond = 1'000'000;
constexpr Nanoseconds kStayWithoutClients = 1'000 * kMillisecond;

}  // namespace

Server::Server(base::Fd listener, Place place, std::string path, Simulation simulation,
               std::uint64_t memory_bytes)
    : listener_(std::move(listener)),
      place_(std::move(place)),
      path_(std::move(path)),
      simulation_(std::move(simulation)),
      memory_bytes_(memory_bytes),
      doorbell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      empty_since_(base::monotonic_ns()) {}

void Server::run(const volatile std::sig_atomic_t& stop) {
  while (stop == 0) {
    if (known_.empty() && base::monotonic_ns() - empty_since_ > kStayWithoutClients &&
        end_if_unused())
      return;
    sleep(simulation_.advance(base::monotonic_ns()));
  }
  end_if_unused();
}

bool Server::end_if_unused() {
  {
    const std::optional<base::Fd> lock = place_.lock_to_end();
    if (!lock) return false;
    accept_clients();
    if (!known_.empty()) return false;
    unlink(path_.c_str());
  }
  place_.remove_folder_if_empty();
  return true;
}

// The longest time for which this process has nothing to do. Polling slows down after a stream has
// been parked for a while: the first milliseconds affect latencies, later ones only CPU time.
Nanoseconds Server::pause_before(const Simulation::Outlook& outlook) const {
  const Nanoseconds now = base::monotonic_ns();
  Nanoseconds pause = 60'000 * kMillisecond;
  if (known_.empty()) {
    const Nanoseconds until = empty_since_ + kStayWithoutClients;
    pause = until > now ? until - now + kMillisecond : 10 * kMillisecond;
  }
  if (outlook.next != kNever) pause = std::min(pause, outlook.next - std::min(outlook.next, now));
  if (outlook.parked) {
    const Nanoseconds parked = now - std::min(now, outlook.parked_since);
    const Nanoseconds poll = parked < 100 * kMillisecond ? 40'000 : 100'000;
    pause = std::min(pause, poll);
  }
  return pause;
}

void Server::sleep(const Simulation::Outlook& outlook) {
  std::vector<pollfd> polled;
  polled.push_back({listener_.get(), POLLIN, 0});
  polled.push_back({doorbell_.get(), POLLIN, 0});
  for (const Client* client : known_) {
    polled.push_back({client->socket.get(), POLLIN, 0});
    polled.push_back({client->process.get(), POLLIN, 0});
  }
  const std::size_t daemons = polled.size();
  const std::vector<std::shared_ptr<MpsServer>> servers = simulation_.mps_servers();
  for (const auto& server : servers) polled.push_back({server->daemon.get(), POLLIN, 0});
  const Nanoseconds pause = pause_before(outlook);
  if (pause > kMillisecond) simulation_.flush_log();
  const timespec timeout{static_cast<time_t>(pause / 1'000'000'000U),
                         static_cast<long>(pause % 1'000'000'000U)};
  if (ppoll(polled.data(), polled.size(), &timeout, nullptr) <= 0) return;
  if (polled[1].revents != 0) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = read(doorbell_.get(), &rings, sizeof rings);
  }
  for (std::size_t i = 0; i < servers.size(); ++i) {
    if (polled[daemons + i].revents == 0) continue;
    simulation_.advance(base::monotonic_ns());
    simulation_.end_server(*servers[i]);
  }
  const std::vector<Client*> asked = known_;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const bool ended = polled[2 * i + 3].revents != 0;
    if (ended) {
      drop(*asked[i]);
    } else if (polled[2 * i + 2].revents != 0) {
      answer(*asked[i]);
    }
  }
  if (known_.empty()) {
    if (!asked.empty()) empty_since_ = base::monotonic_ns();
  }
  if (polled[0].revents != 0) accept_clients();
}

void Server::accept_clients() {
  for (;;) {
    base::Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) continue;
    if (!place_.admits(peer.uid)) continue;
    auto client = std::make_unique<Client>(peer.pid, std::move(socket));
    client->process = open_process(peer.pid);
    known_.push_back(&simulation_.add_client(std::move(client)));
  }
}

void Server::answer(Client& client) {
  Request request;
  base::Fd file;
  const int got = receive_packet(client.socket.get(), request, file);
  if (got == 0) return;
  if (got > 0) {
    // Work that was submitted before the request must be carried out first. For example, the client
    // may drop a graph after its last launch.
    simulation_.advance(base::monotonic_ns());
    Reply reply;
    reply.gpu_pid = getpid();
    reply.devices = simulation_.devices();
    reply.scale = simulation_.scale();
    errno = 0;
    if (!handle(client, request, file, reply)) reply.status = errno != 0 ? errno : EINVAL;
    const int doorbell = request.kind == RequestKind::kHello ? doorbell_.get() : -1;
    if (send_packet(client.socket.get(), reply, doorbell)) return;
  }
  drop(client);
}

// The memory of a client is free when its process has ended, as on a real GPU.
void Server::drop(Client& client) {
  for (const auto& [device, bytes] : client.held_bytes) held_bytes_[device] -= bytes;
  std::erase(known_, &client);
  simulation_.advance(base::monotonic_ns());  // the work before its death
  simulation_.drop_client(client);
}

bool Server::share_memory(Client& client, const Request& request, Reply& reply) {
  if (request.id >= simulation_.devices()) return false;
  std::uint64_t& all = held_bytes_[request.id];
  std::uint64_t& own = client.held_bytes[request.id];
  if (request.kind == RequestKind::kTakeMemory) {
    if (request.a > memory_bytes_ - all) return false;
    all += request.a;
    own += request.a;
  } else if (request.kind == RequestKind::kGiveMemory) {
    if (request.a > own) return false;
    all -= request.a;
    own -= request.a;
  }
  reply.free_bytes = memory_bytes_ - all;
  reply.total_bytes = memory_bytes_;
  return true;
}

bool Server::attach_area(Client& client, const Request& request, const base::Fd& file) {
  struct stat status {};
  const bool shrinks = (fcntl(file.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0;
  if (request.a != kProtocolVersion || shrinks || fstat(file.get(), &status) != 0) return false;
  if (status.st_size < static_cast<off_t>(sizeof(Area)) || client.area() != nullptr) return false;
  client.area_mapping = Mapping(file.get(), sizeof(Area), 0);
  return client.area() != nullptr;
}

bool Server::take_graph(Client& client, const Request& request, const base::Fd& file) {
  auto graph = std::make_shared<GraphWork>(request.b);
  const auto bytes = static_cast<ssize_t>(request.b * sizeof(Work));
  if (pread(file.get(), graph->data(), static_cast<std::size_t>(bytes), 0) != bytes) return false;
  client.graphs.insert_or_assign(request.a, std::move(graph));
  return true;
}

bool Server::handle(Client& client, const Request& request, base::Fd& file, Reply& reply) {
  if (client.area() == nullptr && request.kind != RequestKind::kHello) return false;
  switch (request.kind) {
    case RequestKind::kHello:
      return attach_area(client, request, file);
    case RequestKind::kCreateContext:
      return simulation_.create_context(client, request.id, request.a);
    case RequestKind::kDestroyContext:
      simulation_.destroy_context(client, request.id);
      return true;
    case RequestKind::kSetSlice:
      return simulation_.set_slice(client, request.id, request.a, base::monotonic_ns());
    case RequestKind::kJoinMps:
      errno = EAGAIN;
      return simulation_.join_mps(client, request);
    case RequestKind::kMapMemory:
      return client.memory.map(request.a, request.b, request.c, file);
    case RequestKind::kReachMemory:
      return client.memory.reaches(request.a);
    case RequestKind::kUnmapMemory:
      client.memory.unmap(request.a);
      return true;
    case RequestKind::kUploadGraph:
      return request.b <= 1'000'000 && take_graph(client, request, file);
    case RequestKind::kDropGraph:
      client.graphs.erase(request.a);
      return true;
    case RequestKind::kTakeMemory:
    case RequestKind::kGiveMemory:
    case RequestKind::kLookAtMemory:
      return share_memory(client, request, reply);
  }
  return false;
}

}  // namespace sluice::simgpu
