#include "intercept/client/watcher.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "intercept/client/log.hpp"
#include "intercept/client/threads.hpp"
#include "shm/messages.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

constexpr int kTickMs = 20;
constexpr std::uint64_t kReconnectNs = 100'000'000;
constexpr std::uint64_t kLookNs = 500'000'000;
constexpr int kReconnectTimeoutMs = 50;
constexpr std::uint64_t kTakeNs = 1'000'000'000;
constexpr std::uint64_t kLetThroughNs = 5'000'000;
/// A process that does not call off in time a job that has not begun is taken for stopped.
constexpr std::uint64_t kStoppedNs = 100'000'000;

constexpr short kHungUp = POLLHUP | POLLRDHUP | POLLERR | POLLNVAL;

bool hung_up(int connection) noexcept {
  pollfd state{connection, POLLIN | POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & kHungUp) != 0;
}

ino_t identity(int socket) noexcept {
  struct stat about {};
  return fstat(socket, &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

const char* text_of(shm::FailReason reason) noexcept {
  return reason == shm::FailReason::kControllerSilent ? "the controller is silent"
                                                      : "the controller is gone";
}

}  // namespace

bool Watcher::ensure_running() noexcept {
  if (running_) return true;
  running_ = start_quiet_thread("sluice-watch", [this] { run(); });
  return running_;
}

bool Watcher::take(Client& client, int connection) noexcept {
  const int index = offered_.load();
  if (index == kMaxWatched) return false;
  Watched& watched = watched_[static_cast<std::size_t>(index)];
  watched.client = &client;
  connect(watched, connection);
  offered_.store(index + 1);
  if (!ensure_running()) return false;
  const std::uint64_t deadline = base::monotonic_ns() + kTakeNs;
  for (std::uint32_t done = welcomed_.load(); done != static_cast<std::uint32_t>(index + 1);
       done = welcomed_.load()) {
    const std::uint64_t now = base::monotonic_ns();
    if (now >= deadline) break;
    base::futex_wait(welcomed_, done, deadline - now);
  }
  return true;  // a late watcher makes it live a little later: the program need not wait
}

void Watcher::look_for_controller(int unanswered) noexcept {
  in_sight_.store(false);
  if (const int before = unanswered_.exchange(unanswered); before >= 0) close(before);
  if (ensure_running()) looking_.store(true);
}

void Watcher::abandon_in_child() noexcept {
  if (const int asked = unanswered_.load(); asked >= 0) close(asked);
  const int count = offered_.load();
  for (int i = 0; i < count; ++i) {
    disconnect(watched_[static_cast<std::size_t>(i)]);
  }
}

void Watcher::run() noexcept {
  for (;;) {
    const auto offered = static_cast<std::uint32_t>(offered_.load());
    for (std::uint32_t i = welcomed_.load(); i < offered; ++i) {
      welcome(watched_[i]);
      welcomed_.store(i + 1);
      base::futex_wake_all(welcomed_);
    }
    const std::uint64_t now = base::monotonic_ns();
    for (std::uint32_t i = 0; i < offered; ++i) tick(watched_[i], now);
    jobs_.lapse();
    if (looking_.load()) look(now);
    sleep();
  }
}

/// Until a connection hangs up or a tick is over.
void Watcher::sleep() noexcept {
  std::array<pollfd, kMaxWatched> watch{};
  const auto count = welcomed_.load();
  for (std::uint32_t i = 0; i < count; ++i) watch[i] = {watched_[i].connection, POLLRDHUP, 0};
  poll(watch.data(), count, kTickMs);
}

void Watcher::connect(Watched& watched, int connection) noexcept {
  watched.identity = identity(connection);
  watched.connection = connection;
}

/// A program that closes all descriptors may have closed ours, and have another one of the number.
void Watcher::disconnect(Watched& watched) noexcept {
  const int connection = std::exchange(watched.connection, -1);
  if (connection >= 0 && identity(connection) == watched.identity) close(connection);
}

void Watcher::welcome(Watched& watched) noexcept {
  Client& client = *watched.client;
  client.slot().watcher_beat_ns.store(base::monotonic_ns());
  if (!client.slot().alive.take()) {
    Line(Level::kWarn) << "slot " << client.seat().slot << " is somebody else's; running ungated";
    return;
  }
  watched.priority = shm::SlotInfo::unpack(client.slot().info.load()).priority;
  shm::BoardView view(client.seat().board);
  if (shm::go_live(view, client.seat().slot)) client.set_obeys(true);
}

/// What the controller was asked to change: the gates have followed a priority already.
void Watcher::take_settings(Watched& watched) noexcept {
  Client& client = *watched.client;
  client.take_policy();
  const std::uint8_t priority = shm::SlotInfo::unpack(client.slot().info.load()).priority;
  const std::uint8_t before = std::exchange(watched.priority, priority);
  if (before == 0 && priority != 0) client.jobs().begin_anew();
}

void Watcher::tick(Watched& watched, std::uint64_t now) noexcept {
  Client& client = *watched.client;
  shm::Slot& slot = client.slot();
  shm::BoardView view(client.seat().board);
  slot.watcher_beat_ns.store(now);
  if (watched.connection >= 0 &&
      (hung_up(watched.connection) || identity(watched.connection) != watched.identity)) {
    disconnect(watched);
  }
  tend_slack(watched, now);
  client.jobs().lapse(now);
  const auto state = shm::SlotInfo::unpack(slot.info.load()).state;
  if (state == shm::SlotState::kLeaving) return shm::keep_open(view, client.seat().slot);
  take_settings(watched);
  const std::uint64_t beat = client.seat().board.heartbeat_ns.load();
  const bool silent = now > beat && now - beat > shm::kHeartbeatLostNs;
  if (state == shm::SlotState::kLive) {
    if (watched.connection < 0) return lose(watched, shm::FailReason::kControllerGone);
    if (silent) return lose(watched, shm::FailReason::kControllerSilent);
    return enforce_max_hold(watched, now);
  }
  if (state != shm::SlotState::kFailedOpen) return;
  client.set_obeys(false);  // again: come_back() may have met a launch that gave up
  shm::keep_open(view, client.seat().slot);
  if (!silent) come_back(watched, now);
}

/// Who announced a job may have died before it began, or stand below us by now. And a hold has an
/// end: where one announced job follows the other, what is longer than they leave room for would
/// wait for ever.
void Watcher::tend_slack(Watched& watched, std::uint64_t now) noexcept {
  const Client& client = *watched.client;
  shm::Slot& slot = client.slot();
  if (slot.slack_ns.load() == shm::kUnlimitedSlack) {
    watched.slack_since_ns = 0;
    return;
  }
  if (watched.slack_since_ns == 0) watched.slack_since_ns = now;
  const std::uint64_t limit = client.seat().board.max_hold_ns.load();
  if (now > slot.slack_until_ns.load() || !client.obeys() || !client.outranked()) {
    slot.slack_ns.store(shm::kUnlimitedSlack);
  } else if (limit != 0 && now - watched.slack_since_ns >= limit) {
    watched.slack_since_ns = now;
    // The announcer repeats itself every 50 us; two time slices of the GPU are to see it open.
    while (base::monotonic_ns() - now < kLetThroughNs) slot.slack_ns.store(shm::kUnlimitedSlack);
  }
}

void Watcher::lose(Watched& watched, shm::FailReason reason) noexcept {
  Client& client = *watched.client;
  // Not in the place of a reason that lasts: a launch may be giving up a wait at this moment.
  auto none = static_cast<std::uint32_t>(shm::FailReason::kNone);
  if (!client.slot().fail_reason.compare_exchange_strong(none,
                                                         static_cast<std::uint32_t>(reason))) {
    return;
  }
  client.set_obeys(false);
  shm::BoardView view(client.seat().board);
  shm::fail_open(view, client.seat().slot);
  Line(Level::kWarn) << text_of(reason) << "; running ungated until it is back";
}

void Watcher::come_back(Watched& watched, std::uint64_t now) noexcept {
  Client& client = *watched.client;
  shm::Slot& slot = client.slot();
  std::uint32_t reason = slot.fail_reason.load();
  if (watched.connection < 0 && now >= watched.next_try_ns) {
    watched.next_try_ns = now + kReconnectNs;
    reconnect(watched);
  }
  if (watched.connection < 0) return;
  if (reason == static_cast<std::uint32_t>(shm::FailReason::kDriverWait)) return;
  // Exchanged, because a launching thread may be giving up a wait on the driver at this moment.
  if (!slot.fail_reason.compare_exchange_strong(
          reason, static_cast<std::uint32_t>(shm::FailReason::kNone))) {
    return;
  }
  shm::BoardView view(client.seat().board);
  if (!shm::go_live(view, client.seat().slot)) return;
  if (slot.fail_reason.load() != static_cast<std::uint32_t>(shm::FailReason::kNone)) {
    shm::fail_open(view, client.seat().slot);  // a launch gave up just now, and stays ungated
    return;
  }
  client.set_obeys(true);
  Line(Level::kWarn) << "the controller is back; obeying the gate again";
}

/// To the same slot of the same board: its address is in the GPU's queue and in graphs.
void Watcher::reconnect(Watched& watched) noexcept {
  const Client& client = *watched.client;
  const int connection = shm::connect_controller(socket_path_.c_str());
  if (connection < 0) return;
  const shm::SlotInfo info = shm::SlotInfo::unpack(client.slot().info.load());
  shm::Request request;
  request.priority = info.priority;
  request.policy = client.slot().requested_policy.load();
  request.slot = client.seat().slot;
  request.generation = client.seat().generation;
  request.board_id = client.seat().board.board_id.load();
  request.device_uuid = client.seat().board.devices[info.device].uuid;
  shm::Reply reply;
  const bool welcome = shm::ask(connection, request, reply, kReconnectTimeoutMs) == 0 &&
                       reply.status == shm::ReplyStatus::kOk && reply.slot == client.seat().slot;
  if (welcome) {
    connect(watched, connection);
  } else {
    close(connection);
  }
}

/// A hold has an end: one job may keep this gate closed for max_hold, then it opens for that job.
/// For one that has not begun, 0.1 s after its time: its process is stopped, or would have said so.
void Watcher::enforce_max_hold(Watched& watched, std::uint64_t now) noexcept {
  Client& client = *watched.client;
  shm::Board& board = client.seat().board;
  const std::uint64_t limit = board.max_hold_ns.load();
  const std::uint64_t gate = client.slot().gate.load();
  if (gate == 0) return;
  shm::for_each_other(gate, client.seat().slot, [&](int holder) {
    const shm::Slot& other = board.slots[static_cast<std::size_t>(holder)];
    const std::uint64_t job = other.job.load();
    Hold& hold = watched.holds[static_cast<std::size_t>(holder)];
    if (hold.job != job) hold = {job, now};
    const std::uint64_t until = other.early_hold_until_ns.load();  // after the number of its job
    const bool is_void = until != 0 && now > until + kStoppedNs;
    if (!is_void && (limit == 0 || now - hold.since_ns < limit)) return;
    shm::BoardView view(board);
    shm::waive(view, client.seat().slot, holder, job);
    client.slot().max_hold_opened.fetch_add(1);
    Line(Level::kWarn) << "held for " << (now - hold.since_ns) / 1'000'000 << " ms by pid "
                       << std::uint64_t{other.pid.load()} << " (" << other.command.data()
                       << "); running on without waiting for that job";
  });
}

void Watcher::look(std::uint64_t now) noexcept {
  if (now < next_look_ns_) return;
  next_look_ns_ = now + kLookNs;
  if (const int asked = unanswered_.load(); asked >= 0) {
    pollfd state{asked, POLLIN | POLLRDHUP, 0};
    if (poll(&state, 1, 0) == 0) return;
    unanswered_.store(-1);  // first: a child forked in between would close somebody else's
    close(asked);           // what it offers is let go: whoever launches next asks again
  }
  const int connection = shm::connect_controller(socket_path_.c_str());
  if (connection < 0) return;
  close(connection);
  looking_.store(false);
  in_sight_.store(true);
  g_process.forget_remembered();  // launches ask for a seat again
}

}  // namespace sluice::intercept
