// What the notice thread does about jobs that nobody announced and that come regularly.
#include <algorithm>
#include <utility>

#include "intercept/notices.hpp"
#include "intercept/process.hpp"
#include "shm/clock.hpp"
#include "shm/gates.hpp"

namespace sluice::intercept {
namespace {

/// GPU time before the gates close in which those below are told how much time is left: launches
/// of this length find out in time.
constexpr std::uint64_t kRoomNs = 2'000'000;

void open_room(Client& client) noexcept {
  if (std::exchange(client.told_room(), false)) tell_no_job(client);
}

/// Returns when to look again.
std::uint64_t act_on_prediction(Client& client, std::uint64_t now) noexcept {
  const bool wanted = has_device_work_below(client);
  const std::uint64_t lead = wanted ? lead_of(client) : 0;
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

void Process::wake_notices() noexcept {
  if (config_.predict && start_notices()) notices_.wake();
}

std::uint64_t Process::step_predictions() noexcept {
  const std::uint64_t now = shm::monotonic_ns();
  std::uint64_t look_ns = now + kNoticeIdleNs;
  for_each_client(
      [&](Client& client) { look_ns = std::min(look_ns, act_on_prediction(client, now)); });
  return look_ns;
}

}  // namespace sluice::intercept
