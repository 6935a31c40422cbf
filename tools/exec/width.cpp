#include "tools/exec/width.hpp"

#include <algorithm>
#include <charconv>

#include "tools/common/never_idle.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kBusyPercent = 90;

/// The time for which the client has had jobs since it attached.
std::uint64_t busy_ns(const shm::ClientSnapshot& client) {
  return client.jobs_total_ns + (client.active ? client.active_ns : 0);
}

bool is_busy(const shm::Snapshot& before, const shm::ClientSnapshot& client, std::uint64_t now_ns) {
  if (never_idle(client)) return true;
  const auto earlier =
      std::find_if(before.clients.begin(), before.clients.end(),
                   [&](const auto& other) { return shm::same_client(other, client); });
  if (earlier == before.clients.end() || client.attached_ns < kMinuteNs) return false;
  const std::uint64_t passed = now_ns - std::min(now_ns, before.taken_ns);
  const std::uint64_t busy = busy_ns(client) - std::min(busy_ns(client), busy_ns(*earlier));
  return passed != 0 && busy >= passed / 100 * kBusyPercent;
}

}  // namespace

std::optional<Width> parse_width(const std::string& text) {
  if (text == "auto") return Width{};
  if (text == "all") return Width{Width::Kind::kAll, 0};
  const char* const end = text.data() + text.size();
  Width width{Width::Kind::kSms, 0};
  const auto result = std::from_chars(text.data(), end, width.number);
  if (result.ec != std::errc{} || width.number < 1) return std::nullopt;
  if (result.ptr == end) return width;
  width.kind = Width::Kind::kPercent;
  const bool percent = result.ptr + 1 == end && *result.ptr == '%' && width.number <= 100;
  return percent ? std::optional(width) : std::nullopt;
}

std::string check_width(const std::string& text) {
  if (parse_width(text)) return {};
  return "'" + text + "' is no width: " + kWidthForms;
}

int percent_of_sms(int sms, int all) { return (sms * 100 + all - 1) / all; }

const shm::ClientSnapshot* busy_above(const shm::Snapshot& before, const shm::Snapshot& now,
                                      int priority) {
  for (const shm::ClientSnapshot& client : now.clients) {
    const bool above = client.priority > priority && client.state == shm::SlotState::kLive;
    if (above && is_busy(before, client, now.taken_ns)) return &client;
  }
  return nullptr;
}

}  // namespace sluice::tools
