// Loading and unloading models.
#include <fmt/format.h>
#include <sluice/sluice.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "engine/context_lost.hpp"
#include "engine/out_of_memory.hpp"
#include "server/requests/server.hpp"

namespace sluice::server {
namespace {

std::vector<engine::Weights*> weights_of(const Model& model) {
  std::vector<engine::Weights*> all;
  for (const auto& instance : model.instances) {
    if (auto* const weights = instance->served->weights()) all.push_back(weights);
  }
  return all;
}

/// A message may repeat bytes of a damaged file. Protocols carry text only.
std::string as_text(const std::string& message) {
  return nlohmann::json::parse(base::json_text(nlohmann::json(message)));
}

}  // namespace

void Server::preload() {
  std::vector<std::string> names;
  {
    // A client may already load another model.
    const std::shared_lock lock(mutex_);
    for (const auto& [name, entry] : entries_) {
      if (entry.config.preload) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    const Status status = load(name);
    if (!status.ok()) throw base::RunError(status.message);
  }
  state_ = State::kServing;
}

Replicas Server::set_state(Version& version, std::string state, std::string reason,
                           Replicas replicas) {
  const std::unique_lock lock(mutex_);
  version.state = std::move(state);
  version.reason = std::move(reason);
  if (!replicas.empty()) version.statistics = replicas.front()->statistics;
  return std::exchange(version.replicas, std::move(replicas));
}

/// Returns when models that nobody finds any more have answered their last requests.
void Server::retire(const Replicas& replicas) {
  for (const auto& model : replicas) {
    model->device->dispatcher->retire_model(model);
    if (model->device->residency) model->device->residency->remove(model->id);
  }
}

/// The entry of a model that the server knows, or that it can find.
Server::Entry* Server::entry_for_load(const std::string& name) {
  if (Entry* const known = entry_of(name)) return known;
  if (!options_.find_model || !is_model_name(name)) return nullptr;
  auto config = options_.find_model(name);
  if (!config) return nullptr;
  const std::unique_lock lock(mutex_);
  Entry& entry = entries_[name];
  entry.config = std::move(*config);
  entry.config.preload = false;
  return &entry;
}

std::vector<ModelVersion> Server::wanted_versions(const ModelConfig& config) const {
  if (!options_.find_versions) return {{1, config.path}};
  auto found = chosen_versions(config.versions, options_.find_versions(config));
  if (found.empty()) {
    throw base::RunError(
        fmt::format("there is no version of '{}' in {}", config.versions, config.path));
  }
  return found;
}

Status Server::load_failed(Entry& entry, const std::string& why) {
  const std::unique_lock lock(mutex_);
  entry.failed = entry.loaded() == nullptr && (entry.config.preload || entry.served);
  return {Code::kInternal, fmt::format("model {}: {}", entry.config.name, why)};
}

Status Server::load(const std::string& name) {
  try {
    Entry* const entry = entry_for_load(name);
    if (entry == nullptr) return no_model(name);
    const std::lock_guard change(entry->changes);
    const std::lock_guard one(loading_);
    ModelConfig config = entry->config;
    std::vector<ModelVersion> wanted;
    try {
      if (options_.find_model) config = options_.find_model(name).value_or(config);
      wanted = wanted_versions(config);
    } catch (const std::exception& error) {
      return load_failed(*entry, as_text(error.what()));
    }
    for (const ModelVersion& version : wanted) {
      if (const Status status = load_version(*entry, config, version); !status.ok()) return status;
    }
    unload_others(*entry, wanted);
    const std::unique_lock lock(mutex_);
    config.preload = entry->config.preload;
    entry->config = std::move(config);
    entry->served = true;
    entry->failed = false;
  } catch (const std::exception& error) {
    return {Code::kInternal, fmt::format("model {}: {}", name, as_text(error.what()))};
  }
  say_target();
  return {};
}

/// Loads a version next to the one that is served, which then answers its last requests.
Status Server::load_version(Entry& entry, const ModelConfig& config, const ModelVersion& wanted) {
  Version* version = nullptr;
  {
    const std::unique_lock lock(mutex_);
    version = &entry.versions[wanted.number];
    if (version->state != "READY") {
      version->state = "LOADING";
      version->reason = "loading";
    }
  }
  ModelConfig its = config;
  its.path = wanted.path;
  its.version = wanted.number;
  std::string why;
  Replicas made;
  try {
    for (const int gpu : gpus_of(config)) {
      if (gpu != kNoGpu) its.gpus = {gpu};
      load_beside(its, made.empty() ? version->statistics : made.front()->statistics, made);
    }
    retire(set_state(*version, "READY", "", std::move(made)));
    return {};
  } catch (const engine::ContextLost& lost) {
    why = as_text(lost.what());
    context_lost(why);
  } catch (const std::exception& error) {
    why = as_text(error.what());
  }
  retire(made);  // those on other devices; with a lost context there are no requests
  if (version->state != "READY") set_state(*version, "UNAVAILABLE", why, {});
  return load_failed(entry, why);
}

/// Loads a model on a device, next to what is there.
void Server::load_beside(const ModelConfig& config, std::shared_ptr<Statistics> statistics,
                         Replicas& replicas) {
  Device& its = device(gpus_of(config).front());
  // Until its weights belong to the model.
  std::optional<memory::Residency::Room> room;
  if (its.residency) room.emplace(*its.residency);
  if (statistics && !statistics->fits(config.batch_size)) statistics.reset();
  auto model = room ? load_with_room(config, *room, std::move(statistics))
                    : load_model(config, make_, std::move(statistics));
  model->id = next_model_++;
  model->device = &its;
  model->first_rank = replicas.size() * config.num_worker;
  events_.log(fmt::format("{} on {}: {}, {} block{}, {:.3f} ms", config.name, its.name,
                          model->served().describe(), model->served().blocks(),
                          model->served().blocks() == 1 ? "" : "s",
                          static_cast<double>(model->limits.ns(1)) / 1e6));
  if (its.residency) its.residency->add(model->id, weights_of(*model));
  its.dispatcher->add_model(model);
  replicas.push_back(std::move(model));
}

/// A new model brings its weights with it, and only its load shows what it needs. If that fails,
/// others make room: ever more, until it succeeds or there is no more memory.
std::shared_ptr<Model> Server::load_with_room(const ModelConfig& config,
                                              memory::Residency::Room& room,
                                              const std::shared_ptr<Statistics>& statistics) {
  // More than most models need, so that one repeated load is enough.
  constexpr std::uint64_t kFirstRoomBytes = 256ULL << 20;
  for (std::uint64_t more = kFirstRoomBytes;; more *= 2) {
    try {
      return load_model(config, make_, statistics);
    } catch (const engine::OutOfMemory&) {
      if (!room.make(more)) break;
    }
  }
  // What others were giving back at the first attempt may be free by now.
  return load_model(config, make_, statistics);
}

/// Versions that are not wanted any more answer their last requests.
void Server::unload_others(Entry& entry, const std::vector<ModelVersion>& wanted) {
  for (auto& [number, version] : entry.versions) {
    const bool stays = std::ranges::any_of(
        wanted, [&, found = number](const ModelVersion& each) { return each.number == found; });
    if (stays) continue;
    retire(set_state(version, "UNAVAILABLE", "not a version that is served", {}));
  }
}

Status Server::unload(const std::string& name) {
  Entry* const entry = entry_of(name);
  if (entry == nullptr) return no_model(name);
  const std::lock_guard change(entry->changes);
  for (auto& [number, version] : entry->versions) {
    if (version.replicas.empty()) continue;
    const Replicas replicas = version.replicas;
    set_state(version, "UNLOADING", "being unloaded", replicas);
    for (const auto& model : replicas) {
      model->device->dispatcher->remove_model(model);
      if (model->device->residency) model->device->residency->remove(model->id);
    }
    set_state(version, "UNAVAILABLE", "unloaded", {});
  }
  {
    const std::unique_lock lock(mutex_);
    entry->failed = false;
  }
  say_target();
  return {};
}

/// The gate's target is the strictest slo-ms: jobs of all models share one client.
void Server::say_target() {
  const std::lock_guard one(target_);
  double strictest = 0;
  {
    const std::shared_lock lock(mutex_);
    for (const auto& [name, entry] : entries_) {
      const double slo =
          entry.loaded() != nullptr && entry.config.priority > 0 ? entry.config.slo_ms : 0;
      if (slo > 0 && (strictest == 0 || slo < strictest)) strictest = slo;
    }
  }
  const std::string target =
      strictest > 0 ? fmt::format("p99={}us", static_cast<long>(strictest * 1e3)) : "none";
  static_cast<void>(sluice_set_target(target.c_str()));
}

}  // namespace sluice::server
