#include "server/requests/dispatcher.hpp"

#include <algorithm>
#include <future>
#include <utility>

#include "server/requests/records.hpp"

namespace sluice::server {
namespace {

using scheduler::kNoDeadline;

/// The part of a batch's output that belongs to `items` items from `first`.
engine::Tensor part_of(const engine::Tensor& whole, std::size_t first, std::size_t items) {
  engine::Tensor part = whole;
  part.shape.front() = static_cast<std::int64_t>(items);
  const std::size_t per_item = whole.data.size() / static_cast<std::size_t>(whole.shape.front());
  part.data = whole.data.subspan(first * per_item, items * per_item);
  return part;
}

std::uint64_t bytes_of(const std::vector<engine::Tensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const engine::Tensor& tensor : tensors) bytes += tensor.data.size();
  return bytes;
}

Response response_for(const Pending& pending, const std::vector<engine::Tensor>& outputs,
                      std::size_t first, const std::shared_ptr<const void>& storage,
                      const Model& model) {
  Response response;
  response.version = std::to_string(model.config.version);
  response.storage = storage;
  const auto& wanted = pending.request.outputs;
  for (const engine::Tensor& output : outputs) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), output.name) == wanted.end()) {
      continue;
    }
    response.outputs.push_back(part_of(output, first, pending.items));
    auto& shape = response.outputs.back().shape;
    if (!model.served().batched()) shape.erase(shape.begin());
  }
  return response;
}

Model::Instance* least_used(const Model& model) {
  const auto least =
      std::min_element(model.instances.begin(), model.instances.end(),
                       [](const auto& a, const auto& b) { return a->executions < b->executions; });
  return least->get();
}

bool is_critical(const Execution& execution) { return execution.model->config.priority > 0; }

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options, Announcer& announcer,
                       const ByteBudget& memory, Answer answer, Lost lost, Sharing sharing,
                       std::unique_ptr<Host> host)
    : admit_factor_(options.admit_factor),
      run_late_(options.run_late),
      batch_line_(options.batch_line),
      announcer_(announcer),
      memory_(memory),
      answer_(std::move(answer)),
      lost_(std::move(lost)),
      gpu_(sharing.gpu),
      turn_(sharing.turn),
      residency_(sharing.residency),
      hand_on_(std::move(sharing.hand_on)),
      queue_(options.policy),
      host_(std::move(host)) {
  host_->start([this] { return round(); });
}

void Dispatcher::stop() {
  stop_ = true;
  host_->stop();
}

Dispatcher::~Dispatcher() {
  stop();
  while (run_messages()) {
  }
  for (auto& [task, execution] : executions_) {
    finish(*execution, {Code::kUnavailable, "the server is shutting down", 0, "draining"});
  }
}

void Dispatcher::leave(Message message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
}

void Dispatcher::post(Message message) {
  leave(std::move(message));
  host_->wake();
}

void Dispatcher::post_here(Message message) {
  leave(std::move(message));
  host_->wake_here();
}

void Dispatcher::post_and_wait(const Message& message) {
  std::promise<void> done;
  post([&] {
    message();
    done.set_value();
  });
  done.get_future().wait();
}

/// Runs the messages so far, which may leave others. False: there was none.
bool Dispatcher::run_messages() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(messages_);
  }
  for (const Message& message : messages) message();
  return !messages.empty();
}

std::uint64_t Dispatcher::round() {
  run_messages();
  const std::uint64_t now = host_->now_ns();
  release_held(now);
  drop_overdue(now);
  dispatch();
  note_idle();
  done_at_ns_ = done_at_ns(now);
  unread_ns_ -= std::exchange(read_ns_, 0);  // not before, or it would be nowhere meanwhile
  return next_wake_ns();
}

/// When a held batch must be released, or a waiting request expires.
std::uint64_t Dispatcher::next_wake_ns() const {
  std::uint64_t wake_ns = kNoDeadline;
  for (const auto& [task, execution] : executions_) {
    if (execution->running) continue;
    if (!run_late_) wake_ns = std::min(wake_ns, execution->deadline_ns());
    if (execution->held) wake_ns = std::min(wake_ns, execution->release_ns);
  }
  return wake_ns;
}

void Dispatcher::cancel(std::uint64_t request) {
  post([this, request] {
    for (auto& [task, execution] : executions_) {
      const bool here = std::any_of(execution->requests.begin(), execution->requests.end(),
                                    [&](const Pending& pending) { return pending.id == request; });
      if (!here) continue;
      drop(
          *execution, [&](const Pending& pending) { return pending.id == request; }, client_gone());
      return remove_if_unwanted(task);
    }
  });
}

void Dispatcher::drop_overdue(std::uint64_t now) {
  if (run_late_) return;
  std::vector<std::uint64_t> tasks;
  for (const auto& [task, execution] : executions_) {
    if (!execution->running && execution->deadline_ns() <= now) tasks.push_back(task);
  }
  for (const std::uint64_t task : tasks) {
    drop(*executions_.at(task), [&](const Pending& pending) { return pending.deadline_ns <= now; },
         {Code::kDeadlineExceeded, "the deadline passed in the queue", 0, "deadline"});
    remove_if_unwanted(task);
  }
}

/// Answers the requests of `which`, those of a running step at its end: until then an executor
/// reads them.
void Dispatcher::drop(Execution& execution, const std::function<bool(const Pending&)>& which,
                      const Status& status) {
  for (Pending& pending : execution.requests) {
    if (pending.done && !pending.dropped && which(pending)) pending.dropped = status;
  }
  if (!execution.running) answer_dropped(execution);
}

/// Answers all requests of the executions of `which`.
void Dispatcher::drop_executions(const std::function<bool(const Execution&)>& which,
                                 const Status& status) {
  std::vector<std::uint64_t> tasks;
  for (const auto& [task, execution] : executions_) {
    if (which(*execution)) tasks.push_back(task);
  }
  for (const std::uint64_t task : tasks) {
    drop(
        *executions_.at(task), [](const Pending&) { return true; }, status);
    remove_if_unwanted(task);
  }
}

void Dispatcher::fail_all(const Status& status) {
  post([this, status] { drop_executions([](const Execution&) { return true; }, status); });
}

void Dispatcher::answer_dropped(Execution& execution) {
  for (auto each = execution.requests.begin(); each != execution.requests.end();) {
    if (each->done && each->dropped) answer(execution, *each, *each->dropped, {});
    // The items of a batch that has begun stay in it, so the place of the others' outputs does not
    // change.
    if (each->done || execution.begun) {
      ++each;
      continue;
    }
    execution.items -= each->items;
    each = execution.requests.erase(each);
  }
  if (execution.begun || execution.requests.empty()) return;
  execution.whole_ns = execution.model->timing.whole_ns(execution.items);
  if (execution.in_queue()) queue_.update(task_of(execution));
}

void Dispatcher::remove_if_unwanted(std::uint64_t task) {
  const auto found = executions_.find(task);
  if (found == executions_.end() || found->second->running || found->second->wanted()) return;
  if (found->second->in_queue()) queue_.remove(task);
  give_up_weights(*found->second);
  if (found->second->begun) --found->second->instance->executions;
  executions_.erase(found);
}

void Dispatcher::wake() {
  post([] {});
}

bool Dispatcher::has_critical() const {
  return std::any_of(executions_.begin(), executions_.end(),
                     [](const auto& entry) { return is_critical(*entry.second); });
}

/// Whether inference has the device, or can take it now.
bool Dispatcher::may_run() {
  if (turn_ == nullptr || turn_taken_ || !has_critical()) return true;
  const std::uint64_t now = host_->now_ns();
  if (!turn_asked_) turn_asked_ns_ = now;
  turn_taken_ = turn_->take();
  if (turn_taken_) {
    // Work that was queued before now has waited for training to leave.
    turn_taken_ns_ = turn_asked_ ? now : 0;
    turn_wait_ns_ = now - turn_asked_ns_;
  }
  turn_asked_ = true;
  return turn_taken_;
}

void Dispatcher::dispatch() {
  if (stop_ || !may_run()) return;
  while (const auto step = queue_.begin(host_->now_ns())) start(*step);
}

void Dispatcher::start(const scheduler::Step& step) {
  Execution& execution = *executions_.at(step.task);
  const std::uint64_t now = host_->now_ns();
  execution.running = true;
  execution.step_ns = now;
  if (!execution.begun) {
    execution.begun = true;
    Model& model = *execution.model;
    model.waiting.fetch_sub(execution.requests.size());
    model.statistics->executed(execution.items);
    execution.instance = least_used(model);
    ++execution.instance->executions;
    execution.begun_ns = now;
    const std::uint64_t queued = execution.requests.front().times.queued_ns;
    if (turn_taken_ns_ > queued) execution.turn_wait_ns = turn_taken_ns_ - queued;
    for (Pending& pending : execution.requests) pending.times.begun_ns = now;
  }
  if (is_critical(execution) && !busy_) {
    busy_ = true;
    announcer_.begin_busy(gpu_, execution.requests.front().request.announced, now);
  }
  host_->run(execution, step, [this](const StepResult& result) {
    post_here([this, result] { step_ended(result); });
  });
}

void Dispatcher::step_ended(const StepResult& result) {
  Execution& execution = *executions_.at(result.step.task);
  queue_.end(execution.task, host_->now_ns());
  if (!result.error.empty()) execution.model->failed_ns = host_->now_ns();
  if (result.context_lost) lost_(result.error);
  if (result.error.empty()) {
    execution.runs.emplace_back(result.began_ns, result.ended_ns);
    busy_ns_ += result.ended_ns - result.began_ns;
    Model& model = *execution.model;
    // Blocks of a cold model may have waited for their weights.
    if (execution.cold_ns == 0) {
      model.timing.ran(execution.items, result.step.first_block, result.step.blocks,
                       result.ended_ns - result.began_ns);
    }
    const std::size_t next = result.step.first_block + result.step.blocks;
    if (next == execution.instance->served->blocks()) {
      model.limits.ran(execution.items, execution.blocks_ns());
    }
    if (execution.wanted() && next < execution.instance->served->blocks()) {
      execution.running = false;
      return answer_dropped(execution);
    }
  }
  queue_.remove(execution.task);
  give_up_weights(execution);
  --execution.instance->executions;
  // The next step begins before the answers are written. It is not one of a request that is late.
  drop_overdue(host_->now_ns());
  dispatch();
  execution.running = false;
  answer_dropped(execution);
  finish(execution, result.error.empty() ? Status{} : Status{Code::kInternal, result.error});
  executions_.erase(result.step.task);
}

/// Answers all requests of an execution that have no answer yet.
void Dispatcher::finish(Execution& execution, Status status) {
  const std::uint64_t began = host_->now_ns();
  std::vector<engine::Tensor> outputs;
  std::shared_ptr<const void> storage;
  if (status.ok()) {
    outputs = execution.batch->outputs();
    ByteBudget::Share share(memory_);
    if (!share.resize(bytes_of(outputs))) status = memory_full();
    storage = counted(std::exchange(execution.batch, nullptr), std::move(share));
  }
  std::size_t first = 0;
  for (Pending& pending : execution.requests) {
    if (pending.done) {
      answer(execution, pending, status,
             status.ok() ? response_for(pending, outputs, first, storage, *execution.model)
                         : Response{});
    }
    first += pending.items;
  }
  if (!batch_line_ || !status.ok()) return;
  const std::uint64_t now = host_->now_ns();
  batch_line_(batch_line(execution, now - began, now));
}

void Dispatcher::answer(const Execution& execution, Pending& pending, const Status& status,
                        const Response& response) {
  pending.times.ended_ns = host_->now_ns();
  pending.times.input_ns = execution.input_ns;
  pending.times.blocks_ns = execution.blocks_ns();
  if (!execution.begun) execution.model->waiting.fetch_sub(1);
  const std::uint64_t announced = std::exchange(pending.request.announced, 0);
  if (announced != 0) announcer_.forget(announced);
  if (execution.begun || !move_on(pending, status)) answer_(execution, pending, status, response);
  pending.done = nullptr;
}

/// A busy period ends when no critical request can run. One that waits for its weights cannot, and
/// the gate must be open for it: training may have to finish work before it can give memory.
void Dispatcher::note_idle() {
  if (!busy_ && !turn_asked_) return;
  const bool waits = has_critical();
  const bool runs = std::ranges::any_of(executions_, [](const auto& entry) {
    return is_critical(*entry.second) && !entry.second->cold;
  });
  if (busy_ && !runs) {
    busy_ = false;
    announcer_.end_busy(gpu_);
  }
  if (turn_asked_ && !waits) {
    turn_asked_ = turn_taken_ = false;
    turn_->give_back();
  }
}

void Dispatcher::set_policy(scheduler::Policy policy) {
  post_and_wait([&] { queue_.set_policy(policy, host_->now_ns()); });
}

void Dispatcher::add_model(const std::shared_ptr<Model>& model) {
  post_and_wait([&] { queue_.add_model(model->id, model->instances.size()); });
}

void Dispatcher::remove_model(const std::shared_ptr<Model>& model) {
  bool left = true;
  const auto poll = [&] {
    drop_executions([&](const Execution& each) { return each.model == model && !each.begun; },
                    {Code::kUnavailable, "the model is being unloaded", 0, "not_loaded"});
    left = std::ranges::any_of(executions_,
                               [&](const auto& entry) { return entry.second->model == model; });
    model->removed = true;
    if (!left) queue_.remove_model(model->id);
  };
  while (true) {
    post_and_wait(poll);
    if (!left) return;
    host_->pause();
  }
}

void Dispatcher::retire_model(const std::shared_ptr<Model>& model) {
  bool left = true;
  const auto poll = [&] {
    // Who holds the model may still submit a request for it. New holders cannot come.
    left = model.use_count() > 1 || std::ranges::any_of(executions_, [&](const auto& entry) {
             return entry.second->model == model;
           });
    if (left) return;
    model->removed = true;
    queue_.remove_model(model->id);
  };
  while (true) {
    post_and_wait(poll);
    if (!left) return;
    host_->pause();
  }
}

bool Dispatcher::drain(std::uint64_t until_ns) {
  while (true) {
    bool empty = false;
    post_and_wait([&] { empty = executions_.empty(); });
    if (empty) return true;
    if (host_->now_ns() >= until_ns) return false;
    host_->pause();
  }
}

}  // namespace sluice::server
