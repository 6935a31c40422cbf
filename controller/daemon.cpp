#include "controller/daemon.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/clock.hpp"
#include "base/node_service.hpp"
#include "controller/repair.hpp"

namespace sluice::controller {
namespace {

// `sluice exec` needs time to ask for its lease, and a script needs time between two programs.
constexpr std::uint64_t kIdleNs = 1'000'000'000;
constexpr std::uint64_t kFirstIdleNs = 3'000'000'000;

base::Fd make_timer() {
  base::Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  itimerspec period{};
  period.it_interval.tv_nsec = static_cast<long>(shm::kHeartbeatPeriodNs);
  period.it_value = period.it_interval;
  if (!timer || timerfd_settime(timer.get(), 0, &period, nullptr) != 0) {
    throw std::runtime_error(std::string("cannot make a timer: ") + std::strerror(errno));
  }
  return timer;
}

}  // namespace

base::SignalFd end_signals() {
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler == SIG_IGN) return {SIGTERM, SIGINT};
  return {SIGTERM, SIGINT, SIGHUP};
}

Daemon::Daemon(DaemonOptions options, std::unique_ptr<OwnedBoard> board, Admission& admission,
               const base::SignalFd& signals)
    : options_(std::move(options)),
      owned_(std::move(board)),
      clients_(owned_->board(), tally_),
      registry_(options_.session, clients_, leases_, commands_, admission),
      listener_(options_.session),
      server_(listener_.fd(), registry_, tally_, admission),
      timer_(make_timer()),
      signals_(signals),
      started_ns_(base::monotonic_ns()) {
  if (owned_->adopted()) adopt(clients_, admission, started_ns_);
}

Daemon::~Daemon() {
  repair(clients_, base::monotonic_ns());
  if (options_.session == base::kNodeSession && owned_->any_client_lives()) listener_.leave_name();
}

void Daemon::run() {
  while (running_) {
    std::array<pollfd, 3> ready{
        {{timer_.get(), POLLIN, 0}, {server_.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), -1) < 0) continue;
    if (ready[1].revents != 0) server_.serve();
    if (ready[0].revents != 0) beat();
    if (ready[2].revents != 0) take_signal();
  }
}

void Daemon::beat() {
  // One beat is due, however many periods have passed.
  std::uint64_t periods = 0;
  if (read(timer_.get(), &periods, sizeof(periods)) != sizeof(periods)) return;
  const std::uint64_t now = base::monotonic_ns();
  owned_->board().heartbeat_ns.store(now);
  repair(clients_, now);
  commands_.deliver(clients_);
  server_.drop_silent(now);
  if (const base::Fd before = listener_.restore()) server_.listen_on(listener_.fd());
  owned_->look_after_name(now);
  leases_.expire();
  tally_.leases.store(leases_.size());
  if (options_.exit_when_idle && idle_for_long(now)) {
    spdlog::info("no client is left; exiting");
    running_ = false;
  }
}

bool Daemon::idle_for_long(std::uint64_t now_ns) {
  const bool idle = board().used.load() == 0 && leases_.size() == 0 && !server_.expects_request();
  if (!idle) idle_since_ns_ = 0;
  if (idle && idle_since_ns_ == 0) idle_since_ns_ = now_ns;
  return idle && now_ns - idle_since_ns_ >= kIdleNs && now_ns - started_ns_ >= kFirstIdleNs;
}

void Daemon::take_signal() {
  const base::SignalFd::Received received = signals_.next();
  if (received.signal == 0) return;
  if (received.signal == SIGHUP && options_.on_hang_up) return options_.on_hang_up();
  spdlog::info("{} from pid {}; exiting", strsignal(received.signal), received.sender_pid);
  running_ = false;
}

}  // namespace sluice::controller
