#include "server/requests/server.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/nearest.hpp"
#include "server/requests/check_request.hpp"

namespace sluice::server {
namespace {

/// The request may have moved to another device.
class CancelById : public Cancellation {
 public:
  CancelById(std::vector<Dispatcher*> dispatchers, std::uint64_t request,
             std::shared_ptr<std::atomic<bool>> gone)
      : dispatchers_(std::move(dispatchers)), request_(request), gone_(std::move(gone)) {}
  void cancel() override {
    *gone_ = true;  // first, for a request that moves meanwhile
    for (Dispatcher* const dispatcher : dispatchers_) dispatcher->cancel(request_);
  }

 private:
  std::vector<Dispatcher*> dispatchers_;
  std::uint64_t request_;
  std::shared_ptr<std::atomic<bool>> gone_;
};

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
               options.device),
      outcomes_(options.access_log),
      policy_(options.dispatcher.policy) {
  for (ModelConfig& config : models) {
    const std::string name = config.name;
    entries_[name].config = std::move(config);
  }
  for (const auto& [name, entry] : entries_) {
    for (const int gpu : gpus_of(entry.config)) device(gpu);
  }
}

bool Server::ready() const {
  if (state_ != State::kServing) return false;
  const std::shared_lock lock(mutex_);
  return std::ranges::none_of(entries_, [](const auto& entry) { return entry.second.failed; });
}

void Server::leave() {
  State serving = State::kServing;
  state_.compare_exchange_strong(serving, State::kLeaving);
}

std::uint64_t Server::headers(const std::string& model, std::uint64_t bytes) {
  const std::uint64_t now = base::monotonic_ns();
  const std::shared_lock lock(mutex_);
  const Entry* const entry = asked_for(model);
  // The headers may have any name, and only a critical model has jobs.
  if (entry == nullptr || entry->config.priority == 0) return 0;
  int gpu = gpus_of(entry->config).front();
  if (const Version* const version = entry->loaded()) {
    Replicas replicas = version->replicas;
    gpu = (*earliest(replicas, 1))->gpu();
  }
  return announcer_.headers(gpu, entry->config.name, bytes, now);
}

/// That of `model`, or of the only model that is loaded. Requests of several models take different
/// times to arrive, so an announcement without a name would be wrong for most of them.
const Server::Entry* Server::asked_for(const std::string& model) const {
  if (!model.empty()) {
    const auto found = entries_.find(model);
    return found == entries_.end() ? nullptr : &found->second;
  }
  const Entry* only = nullptr;
  for (const auto& [name, entry] : entries_) {
    if (entry.loaded() == nullptr) continue;
    if (only != nullptr) return nullptr;
    only = &entry;
  }
  return only;
}

void Server::forget(std::uint64_t announced) { announcer_.forget(announced); }

const Server::Version* Server::Entry::loaded() const {
  for (auto each = versions.rbegin(); each != versions.rend(); ++each) {
    if (each->second.state == "READY") return &each->second;
  }
  return nullptr;
}

Server::Entry* Server::entry_of(const std::string& name) {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Status Server::no_model(const std::string& name) const {
  constexpr std::size_t kLongest = 128;
  if (name.size() > kLongest) {
    return {Code::kNotFound, fmt::format("unknown model '{}...'", name.substr(0, kLongest)), 0,
            "unknown_model"};
  }
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries_) names.push_back(known);
  return {Code::kNotFound,
          fmt::format("unknown model '{}'{}", name, base::did_you_mean(name, names)), 0,
          "unknown_model"};
}

/// The loaded model, or nothing and the reason.
Replicas Server::find(const std::string& name, const std::string& version, Status& status) const {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    status = no_model(name);
    return {};
  }
  const Entry& entry = found->second;
  const Version* chosen = entry.loaded();
  if (!version.empty()) {
    const auto same = std::ranges::find_if(
        entry.versions, [&](const auto& each) { return std::to_string(each.first) == version; });
    if (same == entry.versions.end()) {
      constexpr std::size_t kLongest = 32;
      status = {
          Code::kNotFound,
          fmt::format("model '{}' has no version '{}', only {}", name, version.substr(0, kLongest),
                      fmt::join(std::views::keys(entry.versions), ", ")),
          0, "version"};
      return {};
    }
    chosen = &same->second;
  } else if (chosen == nullptr && !entry.versions.empty()) {
    chosen = &entry.versions.rbegin()->second;
  }
  if (chosen != nullptr && chosen->state == "READY") return chosen->replicas;
  const Version never;
  if (chosen == nullptr) chosen = &never;
  status = {Code::kUnavailable,
            fmt::format("model '{}' is {}: {}", name, chosen->state, chosen->reason), 0,
            "not_loaded"};
  return {};
}

/// Whether there is room for one more request, which then waits with the first replica.
Status Server::accept(Replicas& replicas, std::size_t items) {
  Model& model = *replicas.front();
  const std::size_t limit = model.config.max_queue;
  std::size_t waiting = model.waiting.fetch_add(1);
  for (std::size_t i = 1; i < replicas.size(); ++i) waiting += replicas[i]->waiting;
  if (waiting < limit) return {};
  model.waiting.fetch_sub(1);
  return {Code::kResourceExhausted,
          fmt::format("model '{}': {} requests wait already (max-queue)", model.config.name, limit),
          static_cast<double>(model.limits.ns(items)) / 1e6, "queue"};
}

/// A refusal before the queue. `model` is null if the request names none that is loaded.
void Server::refuse(const std::shared_ptr<Model>& model, Pending pending, const Status& status) {
  if (pending.request.announced != 0) announcer_.forget(pending.request.announced);
  pending.times.queued_ns = pending.times.ended_ns = base::monotonic_ns();
  count(model, pending, status);
  if (model) {
    model->statistics->answered(status.code, pending.items, pending.times);
    Execution none;
    none.model = model;
    records_.write(none, pending, status);
  }
  pending.done(status, {});
}

void Server::count(const std::shared_ptr<Model>& model, const Pending& pending,
                   const Status& status) {
  const Request& request = pending.request;
  Outcome outcome{"", "", status.code, status.reason, request.id, request.trace};
  // A client may name any model; only known names are labels.
  if (model || entry_of(request.model) != nullptr) outcome.model = request.model;
  if (model) outcome.version = std::to_string(model->config.version);
  outcome.ms = static_cast<double>(pending.times.ended_ns - pending.times.arrived_ns) / 1e6;
  outcomes_.add(outcome);
}

void Server::refused(const std::string& model, const Status& status) {
  const bool known = entry_of(model) != nullptr;
  outcomes_.add({known ? model : "", "", status.code, status.reason, "", ""});
}

void Server::reopen_logs() {
  records_.reopen();
  outcomes_.reopen();
}

std::shared_ptr<Cancellation> Server::infer(Request request, Done done) {
  Status status;
  if (!answers())
    status = {Code::kUnavailable, "the server is starting or shutting down", 0, "draining"};
  Replicas replicas;
  if (status.ok()) replicas = find(request.model, request.version, status);
  Pending pending;
  if (!replicas.empty()) status = check(replicas, request, pending);
  pending.times.arrived_ns = request.headers_ns;
  pending.request = std::move(request);
  pending.done = std::move(done);
  const auto model = replicas.empty() ? nullptr : replicas.front();
  if (!status.ok()) {
    refuse(model, std::move(pending), status);
    return nullptr;
  }
  stage(*model, pending.request);
  pending.id = next_request_.fetch_add(1);
  const std::uint64_t id = pending.id;
  auto gone = std::make_shared<std::atomic<bool>>(false);
  pending.gone = gone;
  std::vector<Dispatcher*> dispatchers;
  for (const auto& each : replicas) dispatchers.push_back(each->device->dispatcher.get());
  pending.elsewhere.assign(replicas.begin() + 1, replicas.end());
  replicas.clear();
  model->device->dispatcher->submit(model, std::move(pending));
  return std::make_shared<CancelById>(std::move(dispatchers), id, std::move(gone));
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

/// Checks a request, chooses its device and takes its place in the queue there. That replica is
/// then the first.
Status Server::check(Replicas& replicas, Request& request, Pending& pending) {
  const Model& model = *replicas.front();
  pending.deadline_ns = deadline_of(request, model.config);
  pending.announced_ns = announcer_.announced_ns(request.announced);
  const Status status =
      check_request(model.served(), model.config.batch_size, request, pending.items);
  if (!status.ok()) return status;
  std::iter_swap(replicas.begin(), earliest(replicas, pending.items));
  announcer_.goes_to(request.announced, replicas.front()->gpu());
  pending.announced_ns = announcer_.announced_ns(request.announced);
  return accept(replicas, pending.items);
}

void Server::answered(const Execution& execution, Pending& pending, const Status& status,
                      const Response& response) {
  count(execution.model, pending, status);
  execution.model->statistics->answered(status.code, pending.items, pending.times);
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

bool Server::model_ready(const std::string& model, const std::string& version) const {
  Status status;
  return !find(model, version, status).empty();
}

void Server::train(const TrainRequest& request, TrainDone done) {
  if (training_ == nullptr) return done({Code::kUnavailable, "this server does not train"});
  if (state_ != State::kServing) {
    return done({Code::kUnavailable, "the server is starting or shutting down"});
  }
  training_->train(request, std::move(done));
}

Status Server::stop_training(const std::string& job, const std::string& id) {
  if (training_ == nullptr) return {Code::kUnavailable, "this server does not train"};
  return training_->stop_job(job, id);
}

void Server::shut_down() { events_.shut_down(); }

}  // namespace sluice::server
