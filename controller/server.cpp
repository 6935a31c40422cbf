#include "controller/server.hpp"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/clock.hpp"

namespace sluice::controller {
namespace {

constexpr std::uint64_t kSilenceNs = 5'000'000'000;
constexpr int kEventsPerRound = 64;
constexpr int kAcceptsPerRound = 32;

/// With the descriptor `to.enclosed`, if there is one.
void send_reply(Connection& to, const shm::Reply& reply) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec bytes{const_cast<shm::Reply*>(&reply), sizeof(reply)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  const int enclosed = std::exchange(to.enclosed, -1);
  if (enclosed >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &enclosed, sizeof(int));
  }
  // A peer that is gone shows up as a hang-up, and a peer that does not read asks again.
  sendmsg(to.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Checks the version and the size of a received message. kOk if both are right.
shm::Reply check_form(const shm::Request& request, std::size_t size) {
  const bool has_version = size >= sizeof(request.version);
  if (has_version && request.version != shm::kWireVersion) {
    return refusal(shm::ReplyStatus::kWrongVersion,
                   "library and controller are of different builds: wire versions " +
                       std::to_string(request.version) + " and " +
                       std::to_string(shm::kWireVersion));
  }
  if (size != sizeof(request)) {
    return refusal(shm::ReplyStatus::kBadRequest, "message of " + std::to_string(size) +
                                                      " bytes, a request has " +
                                                      std::to_string(sizeof(request)));
  }
  shm::Reply good;
  good.status = shm::ReplyStatus::kOk;
  return good;
}

}  // namespace

shm::Reply reply_with(shm::ReplyStatus status, std::string_view text) {
  shm::Reply reply;
  reply.status = status;
  text.copy(reply.text.data(), reply.text.size() - 1);
  return reply;
}

Server::Server(int listener, RequestHandler& handler, Tally& tally, Admission& admission)
    : listener_(listener),
      handler_(handler),
      tally_(tally),
      admission_(admission),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // the listener
  if (!epoll_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_, &event) != 0) {
    throw std::runtime_error(std::string("cannot watch the socket: ") + std::strerror(errno));
  }
}

void Server::listen_on(int listener) {
  accept_all();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_, &event);
  listener_ = listener;
  accepting_ = true;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_, &event) != 0) accepting_ = false;
}

void Server::serve() {
  std::array<epoll_event, kEventsPerRound> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerRound, 0);
  bool connects = false;
  for (int i = 0; i < count; ++i) {
    auto* connection = static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr);
    if (connection == nullptr) {
      connects = true;
    } else {
      read_from(*connection);
    }
  }
  // Last, because a new connection may push out an old one that has an event in this round.
  if (connects) accept_all();
}

void Server::accept_all() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    base::Fd fd(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      accept_one(std::move(fd));
    } else if (errno == EINTR || errno == ECONNABORTED) {
      continue;
    } else {
      if (errno != EAGAIN) {
        // Out of descriptors or memory. Wait for the next heartbeat, otherwise the loop spins.
        const int error = errno;
        spdlog::log(failed_.warn_or_debug(error), "cannot accept a connection: {}",
                    std::strerror(error));
        listen_for_connections(false);
      }
      return;
    }
  }
}

void Server::accept_one(base::Fd fd) {
  Connection connection;
  connection.peer = Peer::of(fd.get());
  connection.peer.uid = admission_.owner_of(connection.peer.uid);
  connection.fd = std::move(fd);
  const Peer& peer = connection.peer;
  if (!peer.process) return;
  if (!admission_.may_connect(peer.uid)) {
    spdlog::log(dropped_.warn_or_debug(peer.uid),
                "refused pid {} of uid {}: only uid {} may use this session", peer.process->pid(),
                peer.uid, geteuid());
    tally_.refused.fetch_add(1);
    return;
  }
  if (!has_room_for(peer)) return;
  connection.since_ns = base::monotonic_ns();
  connections_.push_back(std::move(connection));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &connections_.back();
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connections_.back().fd.get(), &event) != 0) {
    connections_.pop_back();
  }
}

bool Server::has_room_for(const Peer& peer) {
  const auto of_user = static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [&](const Connection& c) { return c.peer.uid == peer.uid; }));
  if (of_user >= admission_.most_connections_of_a_user() && !make_room(peer.uid)) return false;
  return connections_.size() < admission_.most_connections() || make_room({});
}

/// Drops the oldest connection without a slot, of this user if one is given. A process that has
/// ended has no slot, even if another process still has its connection open.
bool Server::make_room(std::optional<uid_t> of_user) {
  const auto oldest = std::find_if(connections_.begin(), connections_.end(), [&](const auto& c) {
    return (!of_user || c.peer.uid == *of_user) && (c.slots == 0 || c.peer.process->ended());
  });
  if (oldest == connections_.end()) return false;
  spdlog::log(dropped_.warn_or_debug(oldest->peer.uid),
              "dropped the connection of pid {}, uid {}: too many are open",
              oldest->peer.process->pid(), oldest->peer.uid);
  close_connection(*oldest);
  return true;
}

void Server::read_from(Connection& connection) {
  // Also the place of a request, which has the same begin.
  shm::Report report;
  // MSG_TRUNC returns the true size of a message that is longer than a report.
  const ssize_t size = recv(connection.fd.get(), &report, sizeof(report), MSG_TRUNC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    close_connection(connection);
    return;
  }
  if (size == sizeof(report) && report.version == shm::kWireVersion &&
      report.kind == shm::RequestKind::kReport) {
    return handler_.report(connection, report);
  }
  shm::Request request;
  std::memcpy(static_cast<void*>(&request), &report, sizeof(request));
  shm::Reply reply = check_form(request, static_cast<std::size_t>(size));
  const bool good = reply.status == shm::ReplyStatus::kOk;
  if (good) {
    connection.greeted = true;
    reply = handler_.answer(connection, request);
  } else {
    const pid_t pid = connection.peer.process->pid();
    spdlog::log(refused_.warn_or_debug(pid), "refused pid {}: {}", pid, reply.text.data());
    tally_.refused.fetch_add(1);
  }
  send_reply(connection, reply);
  if (!good && connection.slots == 0) close_connection(connection);
}

void Server::close_connection(Connection& connection) {
  handler_.hung_up(connection);
  // Closing the only descriptor of the socket also removes it from the epoll set.
  connections_.remove_if([&](const Connection& c) { return &c == &connection; });
}

void Server::drop_silent(std::uint64_t now_ns) {
  for (auto next = connections_.begin(); next != connections_.end();) {
    Connection& connection = *next++;
    if (connection.greeted || now_ns - connection.since_ns < kSilenceNs) continue;
    spdlog::log(silent_.warn_or_debug(connection.peer.uid),
                "dropped the connection of pid {}: no request in {} s",
                connection.peer.process->pid(), kSilenceNs / 1'000'000'000U);
    close_connection(connection);
  }
  if (!accepting_) listen_for_connections(true);
}

bool Server::expects_request() const noexcept {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const Connection& c) { return !c.greeted; });
}

void Server::listen_for_connections(bool on) {
  epoll_event event{};
  event.events = on ? EPOLLIN : 0U;
  event.data.ptr = nullptr;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_, &event);
  accepting_ = on;
}

}  // namespace sluice::controller
