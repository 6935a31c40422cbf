// What others see of the server: descriptions of its models, status, metrics.
#include <sluice/sluice.h>

#include "server/requests/server.hpp"

namespace sluice::server {
namespace {

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

std::optional<ModelMetadata> Server::metadata(const std::string& name,
                                              const std::string& version) const {
  Status status;
  const auto model = find(name, version, status);
  if (!model) return std::nullopt;
  ModelMetadata metadata{
      name,
      {},
      "sluice_" + model->config.engine,
      model->served().inputs(),
      model->served().outputs(),
      model->served().batched() ? static_cast<std::int64_t>(model->config.batch_size) : 0};
  const std::shared_lock lock(mutex_);
  for (const auto& [number, each] : entries_.at(name).versions) {
    if (each.state == "READY") metadata.versions.push_back(std::to_string(number));
  }
  return metadata;
}

std::optional<std::vector<ModelStatistics>> Server::statistics(const std::string& name) const {
  const std::shared_lock lock(mutex_);
  std::vector<ModelStatistics> all;
  for (const auto& [known, entry] : entries_) {
    if (!name.empty() && known != name) continue;
    for (const auto& [number, version] : entry.versions) {
      if (!version.model) continue;
      all.push_back(version.statistics->read());
      all.back().name = known;
      all.back().version = std::to_string(number);
    }
  }
  if (!name.empty() && all.empty()) return std::nullopt;
  return all;
}

std::vector<RepositoryEntry> Server::repository() const {
  const std::shared_lock lock(mutex_);
  std::vector<RepositoryEntry> all;
  const Version never;
  const auto add = [&](const std::string& name, std::uint64_t number, const Version& version) {
    all.push_back({name, std::to_string(number), version.state,
                   version.state == "READY" ? "" : version.reason});
  };
  for (const auto& [name, entry] : entries_) {
    for (const auto& [number, version] : entry.versions) add(name, number, version);
    if (entry.versions.empty()) add(name, 1, never);
  }
  return all;
}

nlohmann::json Server::status_of(const std::string& name, std::uint64_t number,
                                 const Version& version) const {
  nlohmann::json row{{"name", name}, {"version", std::to_string(number)}, {"state", version.state}};
  if (version.state != "READY") row["reason"] = version.reason;
  if (version.state == "LOADING" && residency_) {
    row["weights_mb"] = mib(residency_->counters().loading_bytes);
  }
  if (!version.model) return row;
  const Model& model = *version.model;
  row["waiting"] = model.waiting.load();
  row["limit_ms"] = static_cast<double>(model.limits.ns(1)) / 1e6;
  row["blocks"] = model.served().blocks();
  row["runs"] = model.served().describe();
  const std::uint64_t bytes = residency_ ? residency_->bytes(model.id) : 0;
  if (bytes > 0) {
    row["weights_mb"] = mib(bytes);
    row["resident"] = residency_->resident(model.id);
  }
  return row;
}

nlohmann::json Server::status() const {
  nlohmann::json models = nlohmann::json::array();
  const bool is_ready = ready();
  const std::shared_lock lock(mutex_);
  const Version never;
  for (const auto& [name, entry] : entries_) {
    for (const auto& [number, version] : entry.versions) {
      models.push_back(status_of(name, number, version));
    }
    if (entry.versions.empty()) models.push_back(status_of(name, 1, never));
  }
  nlohmann::json all{{"ready", is_ready},
                     {"scheduler", scheduler()},
                     {"gated", sluice_attached() == 1},
                     {"queued_bytes", memory_.used()},
                     {"models", std::move(models)}};
  if (training_ != nullptr) all["training"] = training_->status();
  if (residency_) {
    const memory::Residency::Counters counters = residency_->counters();
    all["memory"] = {{"pool_mb", mib(counters.pool_bytes)},
                     {"resident_mb", mib(counters.resident_bytes)},
                     {"loading_mb", mib(counters.loading_bytes)},
                     {"other_mb", mib(counters.other_bytes)},
                     {"short_ms", static_cast<double>(counters.short_ns) / 1e6}};
  }
  return all;
}

std::string Server::metrics() const {
  const std::shared_lock lock(mutex_);
  Statistics::All statistics;
  base::MetricsText out;
  out.family("sluice_serve_waiting_requests", "gauge", "Requests that have not begun.");
  for (const auto& [name, entry] : entries_) {
    for (const auto& [number, version] : entry.versions) {
      if (!version.statistics) continue;
      const base::MetricsText::Labels labels{{"model", name}, {"version", std::to_string(number)}};
      statistics.emplace_back(labels, version.statistics.get());
      out.sample(labels, version.model ? static_cast<double>(version.model->waiting.load()) : 0);
    }
  }
  out.family("sluice_serve_model_ready", "gauge", "Whether the model is served (1) or not (0).");
  for (const auto& [name, entry] : entries_) {
    out.sample({{"model", name}}, entry.loaded() != nullptr ? 1 : 0);
  }
  out.family("sluice_serve_queued_bytes", "gauge", "Memory of requests and unsent responses.");
  out.sample(static_cast<double>(memory_.used()));
  outcomes_.write(out);
  Statistics::write(out, statistics);
  if (training_ != nullptr) training_->write_metrics(out);
  if (residency_) write_memory(out);
  return out.take();
}

void Server::write_memory(base::MetricsText& out) const {
  const memory::Residency::Counters counters = residency_->counters();
  const auto add = [&](const char* name, const char* type, const char* help, std::uint64_t value) {
    out.family(name, type, help);
    out.sample(static_cast<double>(value));
  };
  add("sluice_serve_pool_bytes", "gauge", "Device memory of the server and its training.",
      counters.pool_bytes);
  add("sluice_serve_resident_bytes", "gauge", "Weights on the device.", counters.resident_bytes);
  add("sluice_serve_loading_bytes", "gauge", "Device memory of a model that is loaded first.",
      counters.loading_bytes);
  add("sluice_serve_other_bytes", "gauge", "Device memory of the server apart from weights.",
      counters.other_bytes);
  add("sluice_serve_weight_loads_total", "counter", "Models whose weights came back.",
      counters.loads);
  add("sluice_serve_evictions_total", "counter", "Models whose weights left.", counters.evictions);
  add("sluice_serve_handovers_total", "counter", "Times that training gave memory to inference.",
      counters.handovers);
}

}  // namespace sluice::server
