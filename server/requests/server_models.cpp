// Loading and unloading models.
#include <fmt/format.h>
#include <sluice/sluice.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
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
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  return nlohmann::json::parse(nlohmann::json(message).dump(-1, ' ', false, kReplace));
}

}  // namespace

void Server::preload() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.config.preload) names.push_back(name);
  }
  for (const std::string& name : names) {
    const Status status = load(name);
    if (!status.ok()) throw base::RunError(status.message);
  }
  ready_ = true;
}

void Server::set_state(const std::string& name, std::string state, std::string reason,
                       std::shared_ptr<Model> model) {
  const std::unique_lock lock(mutex_);
  Entry& entry = entries_.at(name);
  entry.state = std::move(state);
  entry.reason = std::move(reason);
  entry.model = std::move(model);
}

Status Server::load(const std::string& name) {
  Entry* const entry = entry_of(name);
  if (entry == nullptr) return no_model(name);
  const std::lock_guard change(entry->changes);
  if (model_ready(name)) return {};
  const std::lock_guard one(loading_);
  set_state(name, "LOADING", "loading", nullptr);
  // Until its weights belong to the model.
  std::optional<memory::Residency::Room> room;
  if (residency_) room.emplace(*residency_);
  try {
    auto model = room ? load_with_room(entry->config, *room) : load_model(entry->config, make_);
    model->id = next_model_++;
    events_.log(fmt::format("{}: {}, {} block{}, {:.3f} ms", name, model->served().describe(),
                            model->served().blocks(), model->served().blocks() == 1 ? "" : "s",
                            static_cast<double>(model->limits.ns(1)) / 1e6));
    if (residency_) residency_->add(model->id, weights_of(*model));
    dispatcher_->add_model(model);
    set_state(name, "READY", "", std::move(model));
  } catch (const engine::ContextLost& lost) {
    const std::string why = as_text(lost.what());
    set_state(name, "UNAVAILABLE", why, nullptr);
    context_lost(why);
    return {Code::kInternal, fmt::format("model {}: {}", name, why)};
  } catch (const std::exception& error) {
    const std::string why = as_text(error.what());
    set_state(name, "UNAVAILABLE", why, nullptr);
    return {Code::kInternal, fmt::format("model {}: {}", name, why)};
  }
  say_target();
  return {};
}

/// A new model brings its weights with it, and only its load shows what it needs. If that fails,
/// others make room: ever more, until it succeeds or there is no more memory.
std::shared_ptr<Model> Server::load_with_room(const ModelConfig& config,
                                              memory::Residency::Room& room) {
  // More than most models need, so that one repeated load is enough.
  constexpr std::uint64_t kFirstRoomBytes = 256ULL << 20;
  for (std::uint64_t more = kFirstRoomBytes;; more *= 2) {
    try {
      return load_model(config, make_);
    } catch (const engine::OutOfMemory&) {
      if (!room.make(more)) break;
    }
  }
  // What others were giving back at the first attempt may be free by now.
  return load_model(config, make_);
}

Status Server::unload(const std::string& name) {
  Entry* const entry = entry_of(name);
  if (entry == nullptr) return no_model(name);
  const std::lock_guard change(entry->changes);
  Status status;
  const auto model = find(name, status);
  if (!model) return {};
  set_state(name, "UNLOADING", "being unloaded", model);
  dispatcher_->remove_model(model);
  if (residency_) residency_->remove(model->id);
  set_state(name, "UNAVAILABLE", "unloaded", nullptr);
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
      const double slo = entry.model && entry.config.priority > 0 ? entry.config.slo_ms : 0;
      if (slo > 0 && (strictest == 0 || slo < strictest)) strictest = slo;
    }
  }
  const std::string target =
      strictest > 0 ? fmt::format("p99={}us", static_cast<long>(strictest * 1e3)) : "none";
  static_cast<void>(sluice_set_target(target.c_str()));
}

}  // namespace sluice::server
