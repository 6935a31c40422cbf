#include "intercept/slot/controller_link.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kRetryNs = 100'000'000;
constexpr std::uint64_t kRetryRefusedNs = 1'000'000'000;

}  // namespace

ino_t socket_identity(int number) noexcept {
  struct stat about {};
  return fstat(number, &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

void ControllerLink::open(int connection) noexcept {
  identity_ = socket_identity(connection);
  fd_ = connection;
  asked_ = false;
}

void ControllerLink::close() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && socket_identity(fd) == identity_) ::close(fd);
}

bool ControllerLink::is_lost() const noexcept {
  constexpr short kHungUp = POLLHUP | POLLRDHUP | POLLERR | POLLNVAL;
  pollfd state{fd_, POLLRDHUP, 0};
  const bool hung_up = poll(&state, 1, 0) > 0 && (state.revents & kHungUp) != 0;
  return hung_up || socket_identity(fd_) != identity_;
}

void ControllerLink::tick(const Seat& seat, const std::string& socket_path,
                          std::uint64_t now_ns) noexcept {
  if (fd_ >= 0 && is_lost()) close();
  shm::Reply reply;
  if (fd_ >= 0 && asked_) {
    const int result = shm::receive(fd_, reply);
    if (result != -EAGAIN) take_reply(reply, seat.slot, now_ns);
  }
  if (fd_ >= 0 || now_ns < next_try_ns_) return;
  next_try_ns_ = now_ns + kRetryNs;
  ask_again(seat, socket_path);
}

/// Asks for the same slot of the same board, because the slot's address is in the GPU's queue and
/// in graphs.
void ControllerLink::ask_again(const Seat& seat, const std::string& socket_path) noexcept {
  const int connection = shm::connect_controller(socket_path.c_str());
  if (connection < 0) return;
  const shm::Board& board = seat.board;
  const shm::SlotInfo info = shm::SlotInfo::unpack(seat.shared().info.load());
  shm::Request request;
  request.priority = info.priority;
  request.policy = seat.shared().requested_policy.load();
  request.slot = seat.slot;
  request.generation = seat.generation;
  request.board_id = board.board_id.load();
  request.device_uuid = board.devices[info.device].uuid;
  open(connection);
  asked_ = true;
  if (shm::tell(connection, request) != 0) close();
}

void ControllerLink::report(const shm::Report& report) const noexcept {
  if (fd_ >= 0 && !asked_) static_cast<void>(shm::tell(fd_, report));
}

/// A connection that ended leaves `reply` empty, which counts as a refusal.
void ControllerLink::take_reply(const shm::Reply& reply, int slot, std::uint64_t now_ns) noexcept {
  asked_ = false;
  if (reply.status == shm::ReplyStatus::kOk && reply.slot == slot) return;
  close();
  next_try_ns_ = now_ns + kRetryRefusedNs;
}

}  // namespace sluice::intercept
