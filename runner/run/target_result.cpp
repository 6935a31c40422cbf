#include "runner/run/target_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "shm/target.hpp"

namespace sluice::runner {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// The object of the client in the status; null if it is not there.
nlohmann::json client_of(const nlohmann::json& status, pid_t pid) {
  if (!status.is_object() || !status.contains("clients")) return nullptr;
  for (const nlohmann::json& client : status["clients"]) {
    if (client.value("pid", 0) == pid) return client;
  }
  return nullptr;
}

double milliseconds(const nlohmann::json& ns, double time_scale) {
  return ns.is_number() ? ns.get<double>() / 1e6 / time_scale : kUnknown;
}

nlohmann::ordered_json number_json(double value) {
  if (std::isnan(value)) return nullptr;
  return value;
}

/// Cut, so that 100 % means all.
std::string percent(double share) {
  return fmt::format("{:g} %", std::floor(std::min(share, 1.0) * 1000) / 10);
}

}  // namespace

double TargetResult::in_time_share() const {
  if (std::isnan(limit_ms) || jobs == 0) return kUnknown;
  return static_cast<double>(in_time) / static_cast<double>(jobs);
}

std::optional<TargetResult> target_result(const Model& model, pid_t pid, double time_scale,
                                          const std::vector<double>& jct_ms,
                                          const nlohmann::json& status) {
  if (!model.target.any()) return std::nullopt;
  TargetResult result;
  result.text = shm::to_string(model.target);
  result.limit_ms =
      model.target.is_relative() ? kUnknown : static_cast<double>(model.target.limit) / 1e6;
  result.alone_ms = result.open_share = kUnknown;
  const nlohmann::json client = client_of(status, pid);
  if (client.is_object() && client["target"].is_object()) {
    const nlohmann::json& seen = client["target"];
    result.state = seen["state"];
    result.alone_ms = milliseconds(seen["alone_ns"], time_scale);
    if (!seen["limit_ns"].is_null()) result.limit_ms = milliseconds(seen["limit_ns"], time_scale);
    const double total_ns = client["jobs_total_ns"];
    if (total_ns > 0) result.open_share = std::min(1.0, seen["open_ns"].get<double>() / total_ns);
  }
  result.jobs = jct_ms.size();
  result.in_time = static_cast<std::uint64_t>(std::count_if(
      jct_ms.begin(), jct_ms.end(), [&](double ms) { return ms <= result.limit_ms; }));
  return result;
}

std::string target_text(const TargetResult& target) {
  std::string text = "target " + target.text;
  if (target.text.ends_with('x') && !std::isnan(target.limit_ms)) {
    text += fmt::format(" ({:.3f} ms)", target.limit_ms);
  }
  if (const double share = target.in_time_share(); !std::isnan(share)) {
    text += fmt::format(": {} of {} job{} in time", percent(share), target.jobs,
                        target.jobs == 1 ? "" : "s");
  }
  if (target.state == "learning") {
    return text + "; still learning how long its jobs take alone, so the gates closed at once";
  }
  if (!std::isnan(target.open_share)) {
    text += fmt::format("; gates open for {:.0f} % of their time", target.open_share * 100);
  }
  if (target.state != "missed") return text;
  text += "; cannot be kept";
  if (!std::isnan(target.alone_ms)) {
    text += fmt::format(" (its jobs take {:.3f} ms alone)", target.alone_ms);
  }
  return text + ", so the gates close at once, as without one";
}

nlohmann::ordered_json target_json(const std::optional<TargetResult>& target) {
  if (!target) return nullptr;
  const bool known = !std::isnan(target->limit_ms);
  return {{"target", target->text},
          {"state", target->state.empty() ? nlohmann::ordered_json()
                                          : nlohmann::ordered_json(target->state)},
          {"limit_ms", number_json(target->limit_ms)},
          {"alone_ms", number_json(target->alone_ms)},
          {"in_time", known ? nlohmann::ordered_json(target->in_time) : nlohmann::ordered_json()},
          {"in_time_share", number_json(target->in_time_share())},
          {"open_share", number_json(target->open_share)}};
}

}  // namespace sluice::runner
