#include "server/server.hpp"

#include <fmt/format.h>
#include <sluice/sluice.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/nearest.hpp"
#include "engine/out_of_memory.hpp"
#include "server/check_request.hpp"

namespace sluice::server {
namespace {

constexpr const char* kVersion = "1";

class CancelById : public Cancellation {
 public:
  CancelById(Dispatcher& dispatcher, std::uint64_t request)
      : dispatcher_(dispatcher), request_(request) {}
  void cancel() override { dispatcher_.cancel(request_); }

 private:
  Dispatcher& dispatcher_;
  std::uint64_t request_;
};

std::vector<engine::Weights*> weights_of(const Model& model) {
  std::vector<engine::Weights*> all;
  for (const auto& instance : model.instances) {
    if (auto* const weights = instance->served->weights()) all.push_back(weights);
  }
  return all;
}

/// The earliest of what the request and the configuration ask for.
std::uint64_t deadline_of(const Request& request, const ModelConfig& config) {
  std::uint64_t deadline = scheduler::kNoDeadline;
  if (request.deadline_ns != 0) deadline = request.deadline_ns;
  if (config.slo_ms > 0 && request.deadline_ns == 0) {
    deadline = request.headers_ns + static_cast<std::uint64_t>(config.slo_ms * 1e6);
  }
  if (config.timeout_us > 0) {
    deadline = std::min(deadline, request.headers_ns + config.timeout_us * 1000);
  }
  return deadline;
}

}  // namespace

Server::Server(const ServerOptions& options, std::vector<ModelConfig> models, MakeInstance make,
               Events events, Attached attached)
    : options_(options),
      make_(std::move(make)),
      events_(std::move(events)),
      training_(attached.training),
      profile_(attached.profile),
      memory_(options.max_queued_bytes),
      announcer_(options.announce, options.jobs),
      records_(options.records_file, std::string(to_string(options.dispatcher.policy)),
               options.device) {
  for (ModelConfig& config : models) {
    const std::string name = config.name;
    entries_[name].config = std::move(config);
  }
  if (options.memory) start_residency();
  dispatcher_ = std::make_unique<Dispatcher>(
      options.dispatcher, announcer_, memory_,
      [this](const Execution& execution, Pending& pending, const Status& status,
             const Response& response) { answered(execution, pending, status, response); },
      [this](const std::string& why) { events_.context_lost(why); },
      Dispatcher::Sharing{training_, residency_.get()});
}

Server::~Server() {
  // Its thread leaves messages with the dispatcher.
  if (residency_) residency_->stop();
}

void Server::start_residency() {
  memory::ResidencyEvents events;
  // Weights move only for models of the dispatcher, which exists by then.
  events.settled = [this](std::uint32_t model, const std::string& error) {
    dispatcher_->weights_settled(model, error);
  };
  events.context_lost = events_.context_lost;
  events.handover = [this](const training::Handover& handover) {
    if (profile_ != nullptr) profile_->handover(handover);
  };
  events.taken = [this](std::uint64_t ns) {
    if (profile_ != nullptr) profile_->took(PerfItem::kInferAllocStorage, ns);
  };
  events.loaded = [this](std::uint64_t ns) {
    if (profile_ != nullptr) profile_->took(PerfItem::kInferLoadParam, ns);
  };
  events.held = [] { return sluice_memory_held(); };
  residency_ = std::make_unique<memory::Residency>(
      *options_.memory, options_.grants ? training_ : nullptr, std::move(events));
}

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

bool Server::drain() {
  ready_ = false;
  const auto limit_ns = static_cast<std::uint64_t>(options_.drain_s * 1e9);
  return dispatcher_->drain(base::monotonic_ns() + limit_ns);
}

std::uint64_t Server::headers(const std::string& model, std::uint64_t bytes) {
  const std::uint64_t now = base::monotonic_ns();
  const std::shared_lock lock(mutex_);
  const ModelConfig* const config = model.empty() ? only_model() : config_of(model);
  // The headers may have any name, and only a critical model has jobs.
  if (config == nullptr || config->priority == 0) return 0;
  return announcer_.headers(config->name, bytes, now);
}

const ModelConfig* Server::config_of(const std::string& model) const {
  const auto found = entries_.find(model);
  return found == entries_.end() ? nullptr : &found->second.config;
}

/// The loaded model, if there is exactly one. Requests of several models take different times to
/// arrive, so an announcement without a name would be wrong for most of them.
const ModelConfig* Server::only_model() const {
  const ModelConfig* only = nullptr;
  for (const auto& [name, entry] : entries_) {
    if (!entry.model) continue;
    if (only != nullptr) return nullptr;
    only = &entry.config;
  }
  return only;
}

void Server::forget(std::uint64_t announced) { announcer_.forget(announced); }

Server::Entry* Server::entry_of(const std::string& name) {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Status Server::no_model(const std::string& name) const {
  constexpr std::size_t kLongest = 128;
  if (name.size() > kLongest) {
    return {Code::kNotFound, fmt::format("unknown model '{}...'", name.substr(0, kLongest))};
  }
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries_) names.push_back(known);
  return {Code::kNotFound,
          fmt::format("unknown model '{}'{}", name, base::did_you_mean(name, names))};
}

/// The loaded model, or null and the reason.
std::shared_ptr<Model> Server::find(const std::string& name, Status& status) const {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    status = no_model(name);
  } else if (found->second.state != "READY") {
    status = {Code::kUnavailable,
              fmt::format("model '{}' is {}: {}", name, found->second.state, found->second.reason)};
  }
  return status.ok() ? found->second.model : nullptr;
}

/// Whether there is room for one more request. Counts it if so.
Status Server::accept(Model& model, std::size_t items) {
  const std::size_t limit = model.config.max_queue;
  if (model.waiting.fetch_add(1) < limit) return {};
  model.waiting.fetch_sub(1);
  return {Code::kResourceExhausted,
          fmt::format("model '{}': {} requests wait already (max-queue)", model.config.name, limit),
          static_cast<double>(model.limits.ns(items)) / 1e6};
}

/// A refusal before the queue. `model` is null if the request names none that is loaded.
void Server::refuse(const std::shared_ptr<Model>& model, Pending pending, const Status& status) {
  if (pending.request.announced != 0) announcer_.forget(pending.request.announced);
  if (model) {
    pending.times.queued_ns = pending.times.ended_ns = base::monotonic_ns();
    model->statistics.answered(status.code, pending.items, pending.times);
    Execution none;
    none.model = model;
    records_.write(none, pending, status);
  }
  pending.done(status, {});
}

std::shared_ptr<Cancellation> Server::infer(Request request, Done done) {
  Status status;
  if (!ready_) status = {Code::kUnavailable, "the server is starting or shutting down"};
  const auto model = status.ok() ? find(request.model, status) : nullptr;
  Pending pending;
  if (model) status = check(*model, request, pending);
  pending.times.arrived_ns = request.headers_ns;
  pending.request = std::move(request);
  pending.done = std::move(done);
  if (!status.ok()) {
    refuse(model, std::move(pending), status);
    return nullptr;
  }
  stage(*model, pending.request);
  pending.id = next_request_.fetch_add(1);
  const std::uint64_t id = pending.id;
  dispatcher_->submit(model, std::move(pending));
  return std::make_shared<CancelById>(*dispatcher_, id);
}

/// Copies the inputs to where the device reads them, in the thread of the request: the device would
/// wait for the copy later. The request's own copy can go.
void Server::stage(Model& model, Request& request) const {
  std::uint64_t bytes = 0;
  for (const engine::Tensor& input : request.inputs) bytes += input.data.size();
  ByteBudget::Share share(memory_);
  if (!share.resize(bytes)) return;
  if (auto staged = model.served().stage(request.inputs)) {
    request.storage = counted(std::move(staged), std::move(share));
  }
}

/// Checks a request and takes its place in the queue.
Status Server::check(Model& model, Request& request, Pending& pending) {
  pending.deadline_ns = deadline_of(request, model.config);
  pending.announced_ns = announcer_.announced_ns(request.announced);
  if (!request.version.empty() && request.version != kVersion) {
    return {Code::kNotFound, fmt::format("model '{}' has no version '{}', only {}", request.model,
                                         request.version, kVersion)};
  }
  const Status status =
      check_request(model.served(), model.config.batch_size, request, pending.items);
  if (!status.ok()) return status;
  return accept(model, pending.items);
}

void Server::answered(const Execution& execution, Pending& pending, const Status& status,
                      const Response& response) {
  execution.model->statistics.answered(status.code, pending.items, pending.times);
  records_.write(execution, pending, status);
  if (profile_ != nullptr && status.ok()) {
    const RequestTimes& times = pending.times;
    profile_->took(PerfItem::kInferQueue, times.begun_ns - times.queued_ns);
    profile_->took(PerfItem::kInferProcess, times.ended_ns - times.begun_ns);
  }
  pending.done(status, response);
  // The input of a request may be large, and its batch may go on.
  pending.request.inputs.clear();
  pending.request.storage.reset();
}

bool Server::model_ready(const std::string& model) const {
  Status status;
  return find(model, status) != nullptr;
}

std::optional<ModelMetadata> Server::metadata(const std::string& name) const {
  Status status;
  const auto model = find(name, status);
  if (!model) return std::nullopt;
  return ModelMetadata{name,
                       {kVersion},
                       "sluice_" + model->config.engine,
                       model->served().inputs(),
                       model->served().outputs(),
                       static_cast<std::int64_t>(model->config.batch_size)};
}

std::optional<std::vector<ModelStatistics>> Server::statistics(const std::string& name) const {
  const std::shared_lock lock(mutex_);
  std::vector<ModelStatistics> all;
  for (const auto& [known, entry] : entries_) {
    if (!entry.model || (!name.empty() && known != name)) continue;
    all.push_back(entry.model->statistics.read());
    all.back().name = known;
    all.back().version = kVersion;
  }
  if (!name.empty() && all.empty()) return std::nullopt;
  return all;
}

std::vector<RepositoryEntry> Server::repository() const {
  const std::shared_lock lock(mutex_);
  std::vector<RepositoryEntry> all;
  for (const auto& [name, entry] : entries_) {
    all.push_back({name, kVersion, entry.state, entry.state == "READY" ? "" : entry.reason});
  }
  return all;
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
  try {
    auto model = load_with_room(entry->config);
    model->id = next_model_++;
    events_.log(fmt::format("{}: {}, {} block{}, {:.3f} ms", name, model->served().describe(),
                            model->served().blocks(), model->served().blocks() == 1 ? "" : "s",
                            static_cast<double>(model->limits.ns(1)) / 1e6));
    if (residency_) residency_->add(model->id, weights_of(*model));
    dispatcher_->add_model(model);
    set_state(name, "READY", "", std::move(model));
  } catch (const std::exception& error) {
    set_state(name, "UNAVAILABLE", error.what(), nullptr);
    return {Code::kInternal, fmt::format("model {}: {}", name, error.what())};
  }
  say_target();
  return {};
}

/// A new model brings its weights with it. If there is no room for them, idle models leave.
std::shared_ptr<Model> Server::load_with_room(const ModelConfig& config) {
  if (!residency_) return load_model(config, make_);
  try {
    return load_model(config, make_);
  } catch (const engine::OutOfMemory&) {
    residency_->evict_idle();
    return load_model(config, make_);
  }
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

void Server::train(const std::string& job, const std::string& args, TrainDone done) {
  if (training_ == nullptr) return done({Code::kUnavailable, "this server does not train"});
  if (!ready_) return done({Code::kUnavailable, "the server is starting or shutting down"});
  training_->train(job, args, std::move(done));
}

Status Server::stop_training(const std::string& job) {
  if (training_ == nullptr) return {Code::kUnavailable, "this server does not train"};
  return training_->stop_job(job);
}

std::string Server::scheduler() const { return std::string(to_string(dispatcher_->policy())); }

Status Server::set_scheduler(const std::string& name) {
  const auto policy = scheduler::parse_policy(name);
  if (!policy) {
    std::string allowed;
    for (const auto each : scheduler::kPolicies) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(each));
    }
    return {Code::kInvalidArgument,
            fmt::format("unknown scheduler '{}', allowed: {}", name, allowed)};
  }
  dispatcher_->set_policy(*policy);
  records_.set_policy(std::string(to_string(*policy)));
  return {};
}

nlohmann::json Server::status() const {
  nlohmann::json models = nlohmann::json::array();
  const std::shared_lock lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    nlohmann::json row{{"name", name}, {"state", entry.state}};
    if (entry.state != "READY") row["reason"] = entry.reason;
    if (entry.model) {
      row["waiting"] = entry.model->waiting.load();
      row["limit_ms"] = static_cast<double>(entry.model->limits.ns(1)) / 1e6;
      row["blocks"] = entry.model->served().blocks();
      row["runs"] = entry.model->served().describe();
      const std::uint64_t bytes = residency_ ? residency_->bytes(entry.model->id) : 0;
      if (bytes > 0) {
        row["weights_mb"] = static_cast<double>(bytes) / (1 << 20);
        row["resident"] = residency_->resident(entry.model->id);
      }
    }
    models.push_back(std::move(row));
  }
  nlohmann::json all{{"ready", ready_.load()},
                     {"scheduler", scheduler()},
                     {"gated", sluice_attached() == 1},
                     {"queued_bytes", memory_.used()},
                     {"models", std::move(models)}};
  if (training_ != nullptr) all["training"] = training_->status();
  return all;
}

std::string Server::metrics() const {
  const std::shared_lock lock(mutex_);
  Statistics::All statistics;
  base::MetricsText out;
  out.family("sluice_serve_waiting_requests", "gauge", "Requests that have not begun.");
  for (const auto& [name, entry] : entries_) {
    if (!entry.model) continue;
    statistics.emplace_back(name, &entry.model->statistics);
    out.sample({{"model", name}}, static_cast<double>(entry.model->waiting.load()));
  }
  out.family("sluice_serve_queued_bytes", "gauge", "Memory of requests and unsent responses.");
  out.sample(static_cast<double>(memory_.used()));
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
  add("sluice_serve_weight_loads_total", "counter", "Models whose weights came back.",
      counters.loads);
  add("sluice_serve_evictions_total", "counter", "Models whose weights left.", counters.evictions);
  add("sluice_serve_handovers_total", "counter", "Times that training gave memory to inference.",
      counters.handovers);
}

void Server::shut_down() { events_.shut_down(); }

}  // namespace sluice::server
