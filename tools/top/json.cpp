#include "tools/top/json.hpp"

#include "tools/status/json.hpp"

namespace sluice::tools {

std::string top_json(const View& view, const std::string& session) {
  nlohmann::ordered_json json = status_object(view.now, session);
  json["span_ns"] = view.span_ns;
  for (std::size_t i = 0; i < view.rates.size(); ++i) {
    const ClientRates& rates = view.rates[i];
    const char* const of = of_steps(view.now.clients[i]) ? "steps" : "jobs";
    nlohmann::ordered_json recent{
        {"of", of}, {"n", rates.jobs}, {"p50_ns", nullptr}, {"max_ns", nullptr}};
    if (rates.jobs != 0) {
      recent["p50_ns"] = rates.p50_ns;
      recent["max_ns"] = rates.max_ns;
    }
    auto& client = json["clients"][i];
    client["launches_per_s"] = rates.launches_per_s;
    client["jobs_per_s"] = rates.jobs_per_s;
    client["held_share"] = rates.held_share;
    client["gpu_share"] = nullptr;
    if (view.now.clients[i].gpu_ns != 0) client["gpu_share"] = rates.gpu_share;
    client["recent_jobs"] = std::move(recent);
  }
  return json_text(json);
}

}  // namespace sluice::tools
