#include "simgpu/driver/connection.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/futex.hpp"
#include "base/processes.hpp"
#include "simgpu/channel/packet.hpp"
#include "simgpu/channel/place.hpp"
#include "simgpu/driver/start_gpu.hpp"

namespace sluice::simgpu {
namespace {

constexpr std::uint64_t kLivenessPeriod = 100'000'000;

}  // namespace

base::Fd make_shared_file(std::size_t bytes, const std::string& name) {
  base::Fd file(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return {};
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) return {};
  return file;
}

bool Connection::open() {
  if (const std::string fault = Place::of_environment().fault(); !fault.empty()) {
    std::fprintf(stderr, "sluice: no simulated GPU: %s\n", fault.c_str());
    lost_ = true;
    return false;
  }
  // A GPU process that is about to end accepts no clients; then another one is started.
  for (int attempt = 0; attempt < 20; ++attempt) {
    lost_ = false;
    socket_ = connect_to_gpu();
    if (socket_ && greet()) return true;
    usleep(10'000);
  }
  lost_ = true;
  return false;
}

bool Connection::greet() {
  const base::Fd file =
      make_shared_file(sizeof(Area), base::simulated_gpu_file(session_name(), getpid()));
  if (!file) return false;
  mapping_ = Mapping(file.get(), sizeof(Area), 0);
  if (!mapping_) return false;
  area().version = kProtocolVersion;
  Request hello;
  hello.kind = RequestKind::kHello;
  hello.a = kProtocolVersion;
  return exchange(hello, file.get(), gpu_, doorbell_) && gpu_.status == 0 && doorbell_;
}

bool Connection::exchange(const Request& request, int file, Reply& reply, base::Fd& received) {
  if (lost()) return false;
  if (send_packet(socket_.get(), request, file) &&
      receive_packet(socket_.get(), reply, received) == 1) {
    return true;
  }
  lost_ = true;
  return false;
}

bool Connection::request(const Request& request, int file, Reply* answer) {
  const std::lock_guard lock(mutex_);
  Reply reply;
  base::Fd none;
  const bool done = exchange(request, file, reply, none) && reply.status == 0;
  if (done && answer != nullptr) *answer = reply;
  return done;
}

void Connection::ring() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(doorbell_.get(), &one, sizeof one);
}

bool Connection::check_lost() {
  if (lost()) return true;
  pollfd polled{socket_.get(), POLLRDHUP, 0};
  const bool hung_up =
      poll(&polled, 1, 0) > 0 && (polled.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
  if (hung_up || area().gone != 0) lost_ = true;
  return lost();
}

bool Connection::wait_completed(Channel& channel, std::uint64_t sequence) {
  while (channel.completed.load() < sequence) {
    const std::uint32_t seen = channel.wake.load();
    std::uint64_t wanted = channel.wanted.load();
    while (wanted > sequence && !channel.wanted.compare_exchange_weak(wanted, sequence)) {
    }
    if (channel.completed.load() >= sequence) break;
    base::futex_wait(channel.wake, seen, kLivenessPeriod);
    if (channel.completed.load() < sequence && channel.wake.load() == seen && check_lost()) {
      return false;
    }
  }
  return true;
}

void Connection::abandon() {
  lost_ = true;
  socket_ = base::Fd();
  doorbell_ = base::Fd();
}

std::uint32_t Connection::name_index(std::string_view name) {
  const std::lock_guard lock(names_mutex_);
  const std::string_view stored = name.substr(0, kNameLength - 1);
  auto& names = area().names;
  for (std::uint32_t i = 1; i < names_; ++i) {
    if (stored == names.at(i).data()) return i;
  }
  if (names_ == kMaxNames) return 0;
  std::copy(stored.begin(), stored.end(), names.at(names_).begin());
  return names_++;
}

}  // namespace sluice::simgpu
