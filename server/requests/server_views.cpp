// What others see of the server: descriptions of its models, status, metrics.
#include <sluice/sluice.h>

#include "server/requests/server.hpp"

namespace sluice::server {
namespace {

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

using memory::Residency;

struct MemoryFamily {
  const char* name;
  const char* type;
  const char* help;
  std::uint64_t Residency::Counters::*field;
};

constexpr MemoryFamily kMemoryFamilies[] = {
    {"sluice_serve_pool_bytes", "gauge", "Device memory of the server and its training.",
     &Residency::Counters::pool_bytes},
    {"sluice_serve_resident_bytes", "gauge", "Weights on the device.",
     &Residency::Counters::resident_bytes},
    {"sluice_serve_loading_bytes", "gauge", "Device memory of a model that is loaded first.",
     &Residency::Counters::loading_bytes},
    {"sluice_serve_other_bytes", "gauge", "Device memory of the server apart from weights.",
     &Residency::Counters::other_bytes},
    {"sluice_serve_weight_loads_total", "counter", "Models whose weights came back.",
     &Residency::Counters::loads},
    {"sluice_serve_evictions_total", "counter", "Models whose weights left.",
     &Residency::Counters::evictions},
    {"sluice_serve_handovers_total", "counter", "Times that training gave memory to inference.",
     &Residency::Counters::handovers},
};

}  // namespace

std::optional<ModelMetadata> Server::metadata(const std::string& name,
                                              const std::string& version) const {
  Status status;
  const Replicas replicas = find(name, version, status);
  if (replicas.empty()) return std::nullopt;
  const auto& model = replicas.front();
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

/// Of all that repository() lists: what is unloaded keeps its counts, what was never loaded has
/// none.
std::optional<std::vector<ModelStatistics>> Server::statistics(const std::string& name) const {
  const std::shared_lock lock(mutex_);
  std::vector<ModelStatistics> all;
  const Version never;
  const auto add = [&](const std::string& known, std::uint64_t number, const Version& version) {
    all.push_back(version.statistics ? version.statistics->read() : ModelStatistics{});
    all.back().name = known;
    all.back().version = std::to_string(number);
  };
  for (const auto& [known, entry] : entries_) {
    if (!name.empty() && known != name) continue;
    for (const auto& [number, version] : entry.versions) add(known, number, version);
    if (entry.versions.empty()) add(known, 1, never);
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

/// A version on one of its devices. Null: on none.
nlohmann::json Server::status_of(const std::string& name, std::uint64_t number,
                                 const Version& version, const Model* model) const {
  nlohmann::json row{{"name", name}, {"version", std::to_string(number)}, {"state", version.state}};
  if (version.state != "READY") row["reason"] = version.reason;
  if (model == nullptr) return row;
  const Device& device = *model->device;
  row["device"] = device.name;
  row["waiting"] = model->waiting.load();
  row["limit_ms"] = ms(model->limits.ns(1));
  row["blocks"] = model->served().blocks();
  row["runs"] = model->served().describe();
  const std::uint64_t bytes = device.residency ? device.residency->bytes(model->id) : 0;
  if (bytes > 0) {
    row["weights_mb"] = mib(bytes);
    row["resident"] = device.residency->resident(model->id);
  }
  return row;
}

nlohmann::json Server::status_of(const Device& device) const {
  nlohmann::json row{{"device", device.name},
                     {"ahead_ms", ms(device.dispatcher->ahead_ns())},
                     {"busy_s", ms(device.dispatcher->busy_ns()) / 1e3}};
  if (!device.residency) return row;
  const memory::Residency::Counters counters = device.residency->counters();
  row["memory"] = {{"pool_mb", mib(counters.pool_bytes)},
                   {"resident_mb", mib(counters.resident_bytes)},
                   {"loading_mb", mib(counters.loading_bytes)},
                   {"other_mb", mib(counters.other_bytes)},
                   {"short_ms", ms(counters.short_ns)}};
  return row;
}

nlohmann::json Server::status() const {
  nlohmann::json models = nlohmann::json::array();
  const bool is_ready = ready();
  const std::shared_lock lock(mutex_);
  const Version never;
  for (const auto& [name, entry] : entries_) {
    for (const auto& [number, version] : entry.versions) {
      for (const auto& model : version.replicas) {
        models.push_back(status_of(name, number, version, model.get()));
      }
      if (version.replicas.empty()) models.push_back(status_of(name, number, version, nullptr));
    }
    if (entry.versions.empty()) models.push_back(status_of(name, 1, never, nullptr));
  }
  nlohmann::json all{{"ready", is_ready},
                     {"scheduler", scheduler()},
                     {"gated", sluice_attached() == 1},
                     {"queued_bytes", memory_.used()},
                     {"models", std::move(models)}};
  if (training_ != nullptr) all["training"] = training_->status();
  for (const Device* const each : devices()) all["devices"].push_back(status_of(*each));
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
      std::size_t waiting = 0;
      for (const auto& model : version.replicas) waiting += model->waiting;
      out.sample(labels, static_cast<double>(waiting));
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
  write_devices(out);
  return out.take();
}

void Server::write_devices(base::MetricsText& out) const {
  const std::vector<Device*> all = devices();
  const auto add = [&](const char* name, const char* type, const char* help, const auto& value) {
    bool begun = false;
    for (const Device* const each : all) {
      const std::optional<double> found = value(*each);
      if (!found) continue;
      if (!std::exchange(begun, true)) out.family(name, type, help);
      out.sample({{"device", each->name}}, *found);
    }
  };
  add("sluice_serve_ahead_seconds", "gauge", "Estimated time until all that is queued is done.",
      [](const Device& device) { return std::optional(ms(device.dispatcher->ahead_ns()) / 1e3); });
  add("sluice_serve_busy_seconds_total", "counter", "Time in which models have run.",
      [](const Device& device) { return std::optional(ms(device.dispatcher->busy_ns()) / 1e3); });
  for (const MemoryFamily& family : kMemoryFamilies) {
    add(family.name, family.type, family.help,
        [&family](const Device& device) -> std::optional<double> {
          if (!device.residency) return std::nullopt;
          return static_cast<double>(device.residency->counters().*family.field);
        });
  }
}

}  // namespace sluice::server
