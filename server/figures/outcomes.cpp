#include "server/figures/outcomes.hpp"

#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/json_text.hpp"
#include "server/figures/statistics.hpp"

namespace sluice::server {

namespace {

std::string line_of(const Outcome& outcome) {
  const nlohmann::ordered_json line{
      {"time", static_cast<double>(base::clock_ns(CLOCK_REALTIME) / 1'000'000) / 1e3},
      {"model", outcome.model},
      {"version", outcome.version},
      {"result", to_string(outcome.code)},
      {"reason", outcome.reason},
      {"ms", outcome.ms},
      {"id", outcome.id},
      {"traceparent", outcome.trace},
  };
  return base::json_text(line) + "\n";
}

}  // namespace

Outcomes::Outcomes(const std::string& log) : log_(log, "sluice serve: the access log") {}

void Outcomes::add(const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  ++counts_[{outcome.model, outcome.version, outcome.code, outcome.reason}];
  if (log_.on()) log_.write(line_of(outcome));
}

void Outcomes::reopen() {
  const std::lock_guard lock(mutex_);
  log_.reopen();
}

void Outcomes::write(base::MetricsText& out) const {
  out.family("sluice_serve_requests_total", "counter",
             "Requests answered or refused, by result and by what caused a refusal.");
  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : counts_) {
    const auto& [model, version, code, reason] = key;
    out.sample({{"model", model},
                {"version", version},
                {"result", std::string(to_string(code))},
                {"reason", std::string(reason)}},
               static_cast<double>(count));
  }
}

}  // namespace sluice::server
