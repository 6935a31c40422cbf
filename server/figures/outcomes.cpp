#include "server/figures/outcomes.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "server/figures/statistics.hpp"

namespace sluice::server {

Outcomes::Outcomes(const std::string& log) {
  if (!log.empty()) log_.emplace(log);
}

void Outcomes::add(const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  ++counts_[{outcome.model, outcome.version, outcome.code, outcome.reason}];
  if (log_) log(outcome);
}

void Outcomes::log(const Outcome& outcome) {
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
  try {
    log_->write(base::json_text(line) + "\n");
  } catch (const base::RunError& error) {
    // A full disk must not end the server.
    std::fprintf(stderr, "sluice serve: %s; the access log ends\n", error.what());
    log_.reset();
  }
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
