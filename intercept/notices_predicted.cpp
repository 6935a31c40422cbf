// What the notice thread does about jobs that nobody announced and that come regularly.
#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "intercept/notices.hpp"
#include "intercept/process.hpp"
#include "shm/gates.hpp"

namespace sluice::intercept {
namespace {

/// GPU time before the gates close in which those below are told how much time is left: launches
/// of this length find out in time.
constexpr std::uint64_t kRoomNs = 2'000'000;

void open_room(Client& client) noexcept {
  if (std::exchange(client.told_room(), false)) tell_no_job(client);
}

/// 0 where a prediction is worth nothing.
std::uint64_t lead_if_wanted(const Client& client) noexcept {
  return has_device_work_below(client) ? lead_of(client) : 0;
}

/// Returns when to look again.
std::uint64_t act_on_prediction(Client& client, std::uint64_t now) noexcept {
  const std::uint64_t lead = lead_if_wanted(client);
  const auto ahead = client.jobs().look_ahead(now, lead);
  if (!ahead) {
    open_room(client);
    return now + kNoticeIdleNs;
  }
  const std::uint64_t start = ahead->expected.start_ns;
  const std::uint64_t room_from = start - lead - client.to_real_ns(kRoomNs);
  if (now < room_from) {
    open_room(client);
    return std::min(room_from, now + kNoticeIdleNs);
  }
  if (!ahead->closed) {
    tell_room(client, start, ahead->expected.lapse_ns);
    client.told_room() = true;
  } else {
    open_room(client);  // the gates hold now; who parks behind the room is to read them
    if (now + client.to_real_ns(handover_ns(client)) >= start) client.kick()();
  }
  return now + kNoticeStepNs;
}

}  // namespace

void Process::expect_job(int slot, const Prediction& prediction, bool first) noexcept {
  // While jobs are expected the thread wakes by itself. Without it each job asks, because a client
  // that makes it worth while may have come.
  if (!first && notice_thread_.load(std::memory_order_relaxed)) return;
  bool pays = false;
  for_each_client([&](const Client& client) {
    if (client.seat().slot != slot) return;
    const std::uint64_t lead = lead_if_wanted(client);
    pays = lead != 0 && prediction.affordable(lead);
  });
  if (pays && start_notices()) notices_.wake();
}

std::uint64_t Process::step_predictions() noexcept {
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t look_ns = now + kNoticeIdleNs;
  for_each_client(
      [&](Client& client) { look_ns = std::min(look_ns, act_on_prediction(client, now)); });
  return look_ns;
}

}  // namespace sluice::intercept
