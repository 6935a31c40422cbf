// What the notice thread does about jobs that nobody announced and that come regularly.
#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "intercept/client/interposer.hpp"
#include "intercept/jobs/announcements.hpp"
#include "shm/gates.hpp"

namespace sluice::intercept {
namespace {

/// GPU time before the gates close in which those below are told how much time is left: launches
/// of this length find out in time.
constexpr std::uint64_t kSlackNs = 2'000'000;

void end_slack(Client& client) noexcept {
  if (std::exchange(client.told_slack(), false)) tell_no_job(client);
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
    end_slack(client);
    return now + kAnnounceIdleNs;
  }
  const std::uint64_t start = ahead->expected.start_ns;
  const std::uint64_t slack_from = start - lead - client.to_real_ns(kSlackNs);
  if (now < slack_from) {
    end_slack(client);
    return std::min(slack_from, now + kAnnounceIdleNs);
  }
  if (!ahead->closed) {
    tell_slack(client, start, ahead->expected.lapse_ns);
    client.told_slack() = true;
  } else {
    end_slack(client);  // the gates hold now; who parks behind the room is to read them
    if (now + client.to_real_ns(handover_ns(client)) >= start) client.early_switch()();
  }
  return now + kAnnounceStepNs;
}

}  // namespace

void Interposer::expect_job(int slot, const Prediction& prediction, bool first) noexcept {
  // While jobs are expected the thread wakes by itself. Without it each job asks, because a client
  // that makes it worth while may have come.
  if (!first && announce_thread_.load(std::memory_order_relaxed)) return;
  bool pays = false;
  for_each_client([&](const Client& client) {
    if (client.seat().slot != slot) return;
    const std::uint64_t lead = lead_if_wanted(client);
    pays = lead != 0 && prediction.affordable(lead);
  });
  if (pays && start_announcements()) announcements_.wake();
}

std::uint64_t Interposer::step_predictions() noexcept {
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t look_ns = now + kAnnounceIdleNs;
  for_each_client(
      [&](Client& client) { look_ns = std::min(look_ns, act_on_prediction(client, now)); });
  return look_ns;
}

}  // namespace sluice::intercept
