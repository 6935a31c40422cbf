// Which batch a request joins, whether it is admitted, and its place among the requests of its
// model.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/requests/dispatcher.hpp"

namespace sluice::server {
namespace {

using scheduler::kNoDeadline;

/// Requests of one batch must agree in everything but the first dimension.
bool same_items(const std::vector<engine::Tensor>& a, const std::vector<engine::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].shape.size() != b[i].shape.size()) return false;
    if (!std::equal(a[i].shape.begin() + 1, a[i].shape.end(), b[i].shape.begin() + 1)) return false;
  }
  return true;
}

/// The order of requests of one model: 1 is first, and 0, the default, is last.
std::uint32_t rank(const Pending& pending) { return pending.request.priority - 1; }

bool fits(const Execution& execution, const Pending& pending) {
  if (execution.requests.empty()) return true;
  return execution.items + pending.items <= execution.model->config.batch_size &&
         same_items(execution.requests.front().request.inputs, pending.request.inputs);
}

/// What the scheduler knows of `items` items of a model.
scheduler::Task task_for(const Model& model, std::size_t items) {
  scheduler::Task task;
  task.model = model.id;
  task.limit_ns = model.limits.ns(items);
  task.block_ns = model.timing.block_ns(items);
  task.whole_ns = model.timing.whole_ns(items);
  return task;
}

}  // namespace

void Dispatcher::accept(std::shared_ptr<Model> model, Pending pending) {
  const std::uint64_t now = host_->now_ns();
  pending.times.queued_ns = now;
  Execution* const behind = first_behind(*model, pending);
  Execution* joins = behind == nullptr ? open_batch(*model, pending) : nullptr;
  Status status = behind == nullptr ? admit(*model, pending, joins, now)
                                    : admit_ahead_of(*behind, pending, now);
  if (!status.ok() && joins != nullptr) {
    // With this request the batch would be late: a batch of its own may not be.
    joins = nullptr;
    status = admit(*model, pending, joins, now);
  }
  if (model->removed) status = {Code::kUnavailable, "the model has been unloaded", 0, "not_loaded"};
  // Its cancellation may have come to this device before it.
  if (pending.gone && *pending.gone) status = client_gone();
  if (!status.ok()) {
    Execution refused;
    refused.model = std::move(model);
    answer(refused, pending, status, {});
    return;
  }
  if (behind != nullptr) {
    overtake(*behind, std::move(pending), now);
  } else if (joins != nullptr) {
    join(*joins, std::move(pending), now);
  } else {
    begin_batch(std::move(model), std::move(pending), now);
  }
}

/// The model's last batch, if it has not begun and has room.
Execution* Dispatcher::open_batch(const Model& model, const Pending& pending) {
  for (auto each = executions_.rbegin(); each != executions_.rend(); ++each) {
    Execution& execution = *each->second;
    if (execution.model.get() != &model) continue;
    return !execution.begun && fits(execution, pending) ? &execution : nullptr;
  }
  return nullptr;
}

/// The model's first batch that waits and has a request of lower priority.
Execution* Dispatcher::first_behind(const Model& model, const Pending& pending) {
  for (auto& [task, execution] : executions_) {
    if (execution->model.get() != &model || execution->begun) continue;
    if (rank(execution->requests.back()) > rank(pending)) return execution.get();
  }
  return nullptr;
}

/// Refuses a request that would miss its deadline anyway, or make others of its batch miss theirs,
/// before it costs the device anything. An idle server refuses nobody: if its estimate is too long,
/// only a run can correct it.
Status Dispatcher::admit(const Model& model, const Pending& pending, const Execution* joins,
                         std::uint64_t now) const {
  const std::uint64_t deadline =
      std::min(pending.deadline_ns, joins == nullptr ? kNoDeadline : joins->deadline_ns());
  scheduler::Task task = task_for(model, pending.items + (joins == nullptr ? 0 : joins->items));
  task.id = joins == nullptr ? 0 : joins->task;
  task.arrival_ns = now;
  task.deadline_ns = deadline;
  return admit(task, deadline, now);
}

/// As admit(). Those that it overtakes may become late: that is what its priority asks for.
Status Dispatcher::admit_ahead_of(const Execution& behind, const Pending& pending,
                                  std::uint64_t now) const {
  scheduler::Task task = task_of(behind);
  const Model& model = *behind.model;
  const std::size_t items = std::min(behind.items + pending.items, model.config.batch_size);
  task.whole_ns = model.timing.whole_ns(items);
  task.block_ns = model.timing.block_ns(items);
  task.deadline_ns = std::min(task.deadline_ns, pending.deadline_ns);
  return admit(task, pending.deadline_ns, now);
}

Status Dispatcher::admit(const scheduler::Task& task, std::uint64_t deadline,
                         std::uint64_t now) const {
  if (deadline == kNoDeadline) return {};
  if (now >= deadline) {
    if (run_late_) return {};
    return {Code::kDeadlineExceeded, "the deadline had passed when the request was read", 0,
            "deadline"};
  }
  if (admit_factor_ <= 0 || executions_.empty()) return {};
  std::uint64_t needed_ns = queue_.completion_ns(task, now);
  if (residency_ != nullptr) needed_ns += residency_->cold_ns(task.model);
  const auto left_ns = static_cast<double>(deadline - now);
  const double late_ns = static_cast<double>(needed_ns) - left_ns * admit_factor_;
  if (late_ns <= 0) return {};
  return {Code::kResourceExhausted,
          fmt::format("the deadline is in {:.1f} ms, but the answer would take {:.1f} ms",
                      left_ns / 1e6, static_cast<double>(needed_ns) / 1e6),
          late_ns / 1e6, "deadline"};
}

void Dispatcher::begin_batch(std::shared_ptr<Model> model, Pending pending, std::uint64_t now) {
  // Requests of a model run in order: an older batch that this request does not fit into goes
  // first.
  for (auto& [task, older] : executions_) {
    if (older->held && older->model == model) older->release_ns = now;
  }
  release_held(now);
  auto execution = std::make_unique<Execution>();
  execution->task = next_task_++;
  execution->items = pending.items;
  execution->model = std::move(model);
  execution->requests.push_back(std::move(pending));
  execution->whole_ns = execution->model->timing.whole_ns(execution->items);
  find_weights(*execution);
  const ModelConfig& config = execution->model->config;
  if (config.max_delay_us > 0 && execution->items < config.batch_size) {
    execution->held = true;
    execution->release_ns = now + config.max_delay_us * 1000;
    hold(*execution, now);
  }
  if (execution->in_queue()) queue_.insert(task_of(*execution), now);
  executions_.emplace(execution->task, std::move(execution));
}

void Dispatcher::join(Execution& execution, Pending pending, std::uint64_t now) {
  execution.items += pending.items;
  execution.requests.push_back(std::move(pending));
  refilled(execution, now);
}

/// Puts a request in front of those of its model with lower priority. The batches keep their places
/// in the queue; requests move to later batches.
void Dispatcher::overtake(Execution& first, Pending pending, std::uint64_t now) {
  std::vector<Execution*> batches;
  std::vector<Pending> requests;
  for (auto each = executions_.find(first.task); each != executions_.end(); ++each) {
    Execution& execution = *each->second;
    if (execution.model != first.model || execution.begun) continue;
    batches.push_back(&execution);
    std::ranges::move(std::exchange(execution.requests, {}), std::back_inserter(requests));
    execution.items = 0;
  }
  const auto before = std::ranges::find_if(
      requests, [&](const Pending& other) { return rank(other) > rank(pending); });
  requests.insert(before, std::move(pending));

  auto batch = batches.begin();
  for (Pending& request : requests) {
    while (batch != batches.end() && !fits(**batch, request)) ++batch;
    if (batch == batches.end()) {
      append(first.model, std::move(request), now);
    } else {
      (*batch)->items += request.items;
      (*batch)->requests.push_back(std::move(request));
    }
  }
  for (Execution* const each : batches) refilled(*each, now);
}

/// Adds a request behind all of its model.
void Dispatcher::append(const std::shared_ptr<Model>& model, Pending pending, std::uint64_t now) {
  if (Execution* const open = open_batch(*model, pending)) {
    join(*open, std::move(pending), now);
  } else {
    begin_batch(model, std::move(pending), now);
  }
}

/// A batch that waits has other requests than before, or none.
void Dispatcher::refilled(Execution& execution, std::uint64_t now) {
  if (execution.requests.empty()) return remove_if_unwanted(execution.task);
  execution.whole_ns = execution.model->timing.whole_ns(execution.items);
  if (execution.held) hold(execution, now);
  if (execution.in_queue()) queue_.update(task_of(execution));
}

/// How long a batch may wait for more requests: not when it is full, and never so long that one of
/// its requests would be late.
void Dispatcher::hold(Execution& execution, std::uint64_t now) {
  if (execution.items == execution.model->config.batch_size) execution.release_ns = now;
  const std::uint64_t deadline = execution.deadline_ns();
  if (deadline == kNoDeadline) return;
  // With room for a slow run, and for this thread to wake late.
  constexpr std::uint64_t kLateNs = 2'000'000;
  const std::uint64_t needed_ns = 2 * execution.model->timing.whole_ns(execution.items) + kLateNs;
  execution.release_ns = std::min(execution.release_ns, deadline - std::min(deadline, needed_ns));
}

scheduler::Task Dispatcher::task_of(const Execution& execution) const {
  scheduler::Task task = task_for(*execution.model, execution.items);
  task.id = execution.task;
  task.arrival_ns = execution.requests.front().times.arrived_ns;
  task.deadline_ns = execution.deadline_ns();
  return task;
}

void Dispatcher::release_held(std::uint64_t now) {
  for (auto& [task, execution] : executions_) {
    if (!execution->held || now < execution->release_ns) continue;
    execution->held = false;
    if (execution->in_queue()) queue_.insert(task_of(*execution), now);
  }
}

}  // namespace sluice::server
