#include "intercept/jobs/predicted_jobs.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "intercept/jobs/lower_clients.hpp"

namespace sluice::intercept {
namespace {

/// The slack is written from this much GPU time before the gates close, so launches of up to this
/// duration wait in time.
constexpr std::uint64_t kSlackNs = 2'000'000;

void end_slack(Client& client) noexcept {
  if (std::exchange(client.told_slack(), false)) tell_no_job(client);
}

}  // namespace

std::uint64_t act_on_prediction(Client& client) {
  const std::uint64_t now = base::monotonic_ns();
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
    end_slack(client);  // work behind a slack wait goes on to its gate wait
    if (now + client.to_real_ns(handover_ns(client)) >= start) client.early_switch()();
  }
  return now + kAnnounceStepNs;
}

}  // namespace sluice::intercept
