#include "intercept/client/watcher.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "intercept/driver/log.hpp"
#include "intercept/driver/threads.hpp"
#include "shm/messages.hpp"
#include "shm/report.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

constexpr int kTickMs = 20;
constexpr std::uint64_t kLookNs = 500'000'000;
constexpr std::uint64_t kTakeNs = 1'000'000'000;
constexpr std::uint64_t kLetThroughNs = 5'000'000;

}  // namespace

bool Watcher::start() noexcept {
  if (running_.exchange(true)) return true;
  const bool started = start_quiet_thread("sluice-watch", [this] { run(); });
  running_.store(started);
  return started;
}

void Watcher::take(Client& client, int connection) noexcept {
  const int index = offered_.load();
  Watched& watched = watched_[static_cast<std::size_t>(index)];
  watched.client = &client;
  watched.link.open(connection);
  offered_.store(index + 1);
  const std::uint64_t deadline = base::monotonic_ns() + kTakeNs;
  for (std::uint32_t done = welcomed_.load(); done != static_cast<std::uint32_t>(index + 1);
       done = welcomed_.load()) {
    const std::uint64_t now = base::monotonic_ns();
    if (now >= deadline) break;
    base::futex_wait(welcomed_, done, deadline - now);
  }
  // If the watcher or the node service is late, the client becomes live a little later.
  const auto is_reserved = [&client] {
    return shm::SlotInfo::unpack(client.shared().info.load()).state == shm::SlotState::kReserved;
  };
  if (client.seat().reader()) nap_while(is_reserved, kTakeNs);
}

void Watcher::look_for_controller(int unanswered) noexcept {
  in_sight_.store(false);
  close_unanswered();
  unanswered_identity_.store(unanswered < 0 ? 0 : socket_identity(unanswered));
  unanswered_.store(unanswered);
  looking_.store(true);
}

/// Cleared before close(), or a child forked in between closes a foreign descriptor.
void Watcher::close_unanswered() noexcept {
  const int asked = unanswered_.exchange(-1);
  if (asked >= 0 && socket_identity(asked) == unanswered_identity_.load()) close(asked);
}

void Watcher::abandon_in_child() noexcept {
  close_unanswered();
  const int count = offered_.load();
  for (int i = 0; i < count; ++i) {
    watched_[static_cast<std::size_t>(i)].link.close();
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
    tend_draws();
    if (looking_.load()) look(now);
    sleep();
  }
}

/// Sleeps until a connection hangs up or the next tick is due.
void Watcher::sleep() noexcept {
  std::array<pollfd, kMaxWatched> watch{};
  const auto count = welcomed_.load();
  for (std::uint32_t i = 0; i < count; ++i) watch[i] = {watched_[i].link.fd(), POLLRDHUP, 0};
  const bool refused = poll(watch.data(), count, kTickMs) < 0 && errno == EINVAL;
  if (refused) poll(nullptr, 0, kTickMs);  // RLIMIT_NOFILE is below the number of descriptors
}

void Watcher::welcome(Watched& watched) noexcept {
  Client& client = *watched.client;
  client.slot().watcher_beat_ns.store(base::monotonic_ns());
  watched.priority = client.priority();
  if (client.seat().reader()) {
    client.wish(shm::SlotState::kLive);
    client.set_obeys(true);
    return;
  }
  if (!client.slot().alive.take()) {
    Line(Level::kWarn) << "slot " << client.seat().slot << " is somebody else's; running ungated";
    return;
  }
  shm::BoardView view(*client.seat().writable);
  if (shm::go_live(view, client.seat().slot)) client.set_obeys(true);
}

/// Puts changes by `sluice set` in force. The gates already follow a new priority.
void Watcher::take_settings(Watched& watched) noexcept {
  Client& client = *watched.client;
  client.take_policy();
  client.jobs().take_target();
  client.jobs().take_give();
  const std::uint8_t priority = client.priority();
  const std::uint8_t before = std::exchange(watched.priority, priority);
  if (before == 0 && priority != 0) client.jobs().begin_anew();
}

void Watcher::tick(Watched& watched, std::uint64_t now) noexcept {
  Client& client = *watched.client;
  shm::Slot& slot = client.slot();
  slot.watcher_beat_ns.store(now);
  slot.sync_since_ns.store(client.jobs().synchronising_since(now));
  client.tend_poller(now);
  watched.link.tick(client.seat(), socket_path_, now);
  watched.holders.tick(client.seat(), now);
  if (!client.seat().reader()) tend_slack(watched, now);
  client.jobs().lapse(now);
  client.orders().tick();
  const Waits::Sums sums = client.jobs().wait_sums();
  client.slices().tick(now, sums.host_ns, sums.waited_ns);
  client.turns().tick(now);
  if (client.seat().reader()) return report(watched);
  shm::BoardView view(*client.seat().writable);
  shm::tend_readers(view, client.seat().slot);
  const auto state = shm::SlotInfo::unpack(slot.info.load()).state;
  if (state == shm::SlotState::kLeaving) return shm::keep_open(view, client.seat().slot);
  take_settings(watched);
  shm::settle_outranked(view, client.seat().slot);
  if (state != shm::SlotState::kLive) return shm::keep_open(view, client.seat().slot);
  shm::tend_gate(view, client.seat().slot);
}

/// The node service does the rest of the tick.
void Watcher::report(Watched& watched) noexcept {
  Client& client = *watched.client;
  const auto wished = shm::SlotInfo::unpack(client.slot().info.load()).state;
  if (wished != shm::SlotState::kLeaving) take_settings(watched);
  report_.slot = client.seat().slot;
  report_.generation = client.seat().generation;
  shm::fill_report(report_, client.slot());
  watched.link.report(report_);
}

void Watcher::tend_draws() noexcept {
  std::array<std::uint64_t, 2> launches{};
  const auto count = static_cast<std::uint32_t>(offered_.load());
  for (std::uint32_t i = 0; i < count; ++i) {
    Client& client = *watched_[i].client;
    if (!client.pacer().estimates_gpu_time()) continue;
    const shm::Slot& slot = client.slot();
    for (std::size_t entry = 0; entry < shm::kMaxEntries; ++entry) {
      const shm::EntryCounters& counters = slot.entries[entry];
      launches[draw_of(static_cast<Entry>(entry))] +=
          counters.launches() - counters.value(shm::Count::kCaptured);
    }
  }
  for (std::size_t kind = 0; kind < launches.size(); ++kind) draw_rule_.tick(kind, launches[kind]);
  draw_rule_.adapt();
}

/// Opens the slack word when it is no longer valid: the announcing client may be dead, or may be
/// below this client now. A living announcer writes its slack again at once.
///
/// Also limits the hold: where one announced job follows the other, a launch that is longer than
/// the slack between them would wait indefinitely.
void Watcher::tend_slack(Watched& watched, std::uint64_t now) noexcept {
  const Client& client = *watched.client;
  shm::Slot& slot = client.slot();
  if (slot.slack_ns.load() == shm::kUnlimitedSlack) {
    watched.slack_since_ns = 0;
    return;
  }
  if (watched.slack_since_ns == 0) watched.slack_since_ns = now;
  const std::uint64_t limit = client.seat().board.max_hold_ns.load();
  const bool is_void = now > slot.slack_until_ns.load() || watched.holders.one_died_lately();
  if (is_void || !client.obeys() || !client.outranked()) {
    slot.slack_ns.store(shm::kUnlimitedSlack);
  } else if (limit != 0 && now - watched.slack_since_ns >= limit) {
    watched.slack_since_ns = now;
    // The announcer writes again every 50 us, so the word is kept open for 5 ms, two time slices of
    // the GPU.
    while (base::monotonic_ns() - now < kLetThroughNs) slot.slack_ns.store(shm::kUnlimitedSlack);
  }
}

void Watcher::look(std::uint64_t now) noexcept {
  if (now < next_look_ns_) return;
  next_look_ns_ = now + kLookNs;
  if (const int asked = unanswered_.load(); asked >= 0) {
    pollfd state{asked, POLLIN | POLLRDHUP, 0};
    const bool ours = socket_identity(asked) == unanswered_identity_.load();
    if (ours && poll(&state, 1, 0) == 0) return;
    close_unanswered();  // an offered slot is dropped: the next launch asks again
  }
  const int connection = shm::connect_controller(socket_path_.c_str());
  if (connection < 0) return;
  close(connection);
  looking_.store(false);
  in_sight_.store(true);
  g_process.forget_remembered();  // so that launches ask for a slot again
}

}  // namespace sluice::intercept
