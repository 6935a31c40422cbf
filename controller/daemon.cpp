#include "controller/daemon.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/clock.hpp"
#include "controller/repair.hpp"
#include "shm/session.hpp"

namespace sluice::controller {
namespace {

// `sluice exec` needs time to ask for its lease, and a script needs time between two programs.
constexpr std::uint64_t kIdleNs = 1'000'000'000;
constexpr std::uint64_t kFirstIdleNs = 3'000'000'000;
// The kernel tears down a killed process of 8 GiB in 0.6 s (measured on one H200 host).
constexpr std::uint64_t kTearDownNs = 2'000'000'000;
constexpr std::uint64_t kStaleLifeNs = 30'000'000;

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

bool any_client_lives(const shm::Board& board) {
  return std::any_of(board.slots.begin(), board.slots.end(), [](const shm::Slot& slot) {
    return shm::lives(shm::SlotInfo::unpack(slot.info.load()).state);
  });
}

}  // namespace

base::SignalFd end_signals() {
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler == SIG_IGN) return {SIGTERM, SIGINT};
  return {SIGTERM, SIGINT, SIGHUP};
}

OwnedBoard::OwnedBoard(const std::string& session, std::uint64_t max_hold_ns)
    : adoption_(shm::BoardMapping::adopt_or_create(session)) {
  board().heartbeat_ns.store(base::monotonic_ns());
  board().controller_pid.store(static_cast<std::uint32_t>(getpid()));
  board().controller_starts.fetch_add(1);
  board().max_hold_ns.store(max_hold_ns);
}

OwnedBoard::~OwnedBoard() {
  board().controller_pid.store(0);
  const std::uint64_t start = base::monotonic_ns();
  // Living clients remove the board themselves. Killed clients cannot, and for a moment they may
  // still look alive.
  for (std::uint64_t waited = 0; !adoption_.mapping.remove_if_unused();
       waited = base::monotonic_ns() - start) {
    if (waited > kTearDownNs || (waited > kStaleLifeNs && any_client_lives(board()))) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Daemon::Daemon(const DaemonOptions& options, const base::SignalFd& end_signals)
    : options_(options),
      owned_(options.session, options.max_hold_ns),
      clients_(owned_.board(), tally_),
      registry_(options.session, clients_, leases_, commands_),
      listener_(options.session),
      server_(listener_.fd(), registry_, tally_),
      timer_(make_timer()),
      signals_(end_signals),
      started_ns_(base::monotonic_ns()) {
  if (owned_.adopted()) adopt(clients_, started_ns_);
}

Daemon::~Daemon() { repair(clients_, base::monotonic_ns()); }

void Daemon::run() {
  while (running_) {
    std::array<pollfd, 3> ready{
        {{timer_.get(), POLLIN, 0}, {server_.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), -1) < 0) continue;
    if (ready[1].revents != 0) server_.serve();
    if (ready[0].revents != 0) beat();
    if (ready[2].revents != 0 && end_signal_came()) running_ = false;
  }
}

void Daemon::beat() {
  // One beat is due, however many periods have passed.
  std::uint64_t periods = 0;
  if (read(timer_.get(), &periods, sizeof(periods)) != sizeof(periods)) return;
  const std::uint64_t now = base::monotonic_ns();
  owned_.board().heartbeat_ns.store(now);
  repair(clients_, now);
  commands_.deliver(clients_);
  server_.drop_silent(now);
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

bool Daemon::end_signal_came() {
  const base::SignalFd::Received received = signals_.next();
  if (received.signal == 0) return false;
  spdlog::info("{} from pid {}; exiting", strsignal(received.signal), received.sender_pid);
  return true;
}

}  // namespace sluice::controller
