#include "server/dispatcher.hpp"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <utility>

#include "base/clock.hpp"

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

/// The part of a batch's output that belongs to `items` items from `first`.
engine::Tensor part_of(const engine::Tensor& whole, std::size_t first, std::size_t items) {
  engine::Tensor part = whole;
  part.shape.front() = static_cast<std::int64_t>(items);
  const std::size_t per_item = whole.data.size() / static_cast<std::size_t>(whole.shape.front());
  part.data = whole.data.subspan(first * per_item, items * per_item);
  return part;
}

Response response_for(const Pending& pending, const std::vector<engine::Tensor>& outputs,
                      std::size_t first, const std::shared_ptr<engine::Batch>& batch) {
  Response response;
  response.storage = batch;
  const auto& wanted = pending.request.outputs;
  for (const engine::Tensor& output : outputs) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), output.name) == wanted.end()) {
      continue;
    }
    response.outputs.push_back(part_of(output, first, pending.items));
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

Dispatcher::Dispatcher(const DispatcherOptions& options, Announcer& announcer, Answer answer,
                       Lost lost)
    : admit_factor_(options.admit_factor),
      announcer_(announcer),
      answer_(std::move(answer)),
      lost_(std::move(lost)),
      policy_(options.policy),
      queue_(options.policy),
      thread_([this] { loop(); }) {}

Dispatcher::~Dispatcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  executors_.clear();  // waits for running steps
  for (const Message& message : messages_) message();
  for (auto& [task, execution] : executions_) {
    finish(*execution, {Code::kUnavailable, "the server is shutting down"});
  }
}

void Dispatcher::post(Message message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  wake_.notify_one();
}

void Dispatcher::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (messages_.empty()) {
      const std::uint64_t wake_ns = next_wake_ns();
      const auto ready = [this] { return stop_ || !messages_.empty(); };
      if (wake_ns == kNoDeadline) {
        wake_.wait(lock, ready);
      } else {
        const auto at = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(wake_ns));
        wake_.wait_until(lock, at, ready);
      }
    }
    const std::vector<Message> messages = std::exchange(messages_, {});
    lock.unlock();
    for (const Message& message : messages) message();
    const std::uint64_t now = base::monotonic_ns();
    release_held(now);
    drop_overdue(now);
    dispatch();
    note_idle();
    lock.lock();
  }
}

/// When a held batch must be released, or a waiting request expires.
std::uint64_t Dispatcher::next_wake_ns() const {
  std::uint64_t wake_ns = kNoDeadline;
  for (const auto& [task, execution] : executions_) {
    if (execution->begun) continue;
    wake_ns = std::min(wake_ns, execution->deadline_ns());
    if (execution->held) wake_ns = std::min(wake_ns, execution->release_ns);
  }
  return wake_ns;
}

void Dispatcher::submit(std::shared_ptr<Model> model, Pending pending) {
  // std::function must be copyable.
  auto shared = std::make_shared<Pending>(std::move(pending));
  post([this, model = std::move(model), shared] { accept(model, std::move(*shared)); });
}

void Dispatcher::accept(std::shared_ptr<Model> model, Pending pending) {
  const std::uint64_t now = base::monotonic_ns();
  pending.times.queued_ns = now;
  Execution* const joins = open_batch(*model, pending);
  if (const Status status = admit(*model, pending, joins, now); !status.ok()) {
    Execution refused;
    refused.model = std::move(model);
    answer(refused, pending, status, {});
    return;
  }
  if (joins != nullptr) {
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
    const bool room = execution.items + pending.items <= model.config.batch_size;
    const bool joins =
        !execution.begun && room &&
        same_items(execution.requests.front().request.inputs, pending.request.inputs);
    return joins ? &execution : nullptr;
  }
  return nullptr;
}

/// Refuses a request that would miss its deadline anyway, before it costs the device anything.
Status Dispatcher::admit(const Model& model, const Pending& pending, const Execution* joins,
                         std::uint64_t now) const {
  if (pending.deadline_ns == kNoDeadline) return {};
  if (now >= pending.deadline_ns) {
    return {Code::kDeadlineExceeded, "the deadline had passed when the request was read"};
  }
  if (admit_factor_ <= 0) return {};
  scheduler::Task task;
  task.model = model.id;
  task.arrival_ns = now;
  task.deadline_ns = pending.deadline_ns;
  task.limit_ns = model.limit_ns;
  const std::size_t items = pending.items + (joins == nullptr ? 0 : joins->items);
  task.block_ns = model.timing.block_ns(items);
  task.whole_ns = model.timing.whole_ns(items);
  // A request that joins a batch costs only the difference, but is done with the batch.
  const std::uint64_t in_queue_ns = joins == nullptr ? 0 : model.timing.whole_ns(joins->items);
  const std::uint64_t complete_ns = queue_.completion_ns(task, now);
  const std::uint64_t needed_ns = complete_ns - std::min(complete_ns, in_queue_ns);
  const double left_ns = static_cast<double>(pending.deadline_ns - now) * admit_factor_;
  const double late_ns = static_cast<double>(needed_ns) - left_ns;
  if (late_ns <= 0) return {};
  return {Code::kResourceExhausted,
          fmt::format("the deadline is in {:.1f} ms, but the answer would take {:.1f} ms",
                      static_cast<double>(pending.deadline_ns - now) / 1e6,
                      static_cast<double>(needed_ns) / 1e6),
          late_ns / 1e6};
}

void Dispatcher::begin_batch(std::shared_ptr<Model> model, Pending pending, std::uint64_t now) {
  auto execution = std::make_unique<Execution>();
  execution->task = next_task_++;
  execution->items = pending.items;
  execution->model = std::move(model);
  execution->requests.push_back(std::move(pending));
  const ModelConfig& config = execution->model->config;
  if (config.max_delay_us > 0 && execution->items < config.batch_size) {
    execution->held = true;
    execution->release_ns = now + config.max_delay_us * 1000;
  } else {
    queue_.insert(task_of(*execution), now);
  }
  executions_.emplace(execution->task, std::move(execution));
}

void Dispatcher::join(Execution& execution, Pending pending, std::uint64_t now) {
  execution.items += pending.items;
  execution.requests.push_back(std::move(pending));
  if (!execution.held) {
    queue_.update(task_of(execution));
  } else if (execution.items == execution.model->config.batch_size) {
    execution.release_ns = now;
  }
}

scheduler::Task Dispatcher::task_of(const Execution& execution) const {
  const Model& model = *execution.model;
  scheduler::Task task;
  task.id = execution.task;
  task.model = model.id;
  task.arrival_ns = execution.requests.front().times.arrived_ns;
  task.deadline_ns = execution.deadline_ns();
  task.limit_ns = model.limit_ns;
  task.block_ns = model.timing.block_ns(execution.items);
  task.whole_ns = model.timing.whole_ns(execution.items);
  return task;
}

void Dispatcher::release_held(std::uint64_t now) {
  for (auto& [task, execution] : executions_) {
    if (!execution->held || now < execution->release_ns) continue;
    execution->held = false;
    queue_.insert(task_of(*execution), now);
  }
}

void Dispatcher::cancel(std::uint64_t request) {
  post([this, request] {
    for (auto& [task, execution] : executions_) {
      drop(*execution, [&](const Pending& pending) { return pending.id == request; },
           {Code::kCancelled, "the client is gone"});
      if (execution->requests.empty()) return remove_if_empty(task);
    }
  });
}

void Dispatcher::drop_overdue(std::uint64_t now) {
  std::vector<std::uint64_t> tasks;
  for (const auto& [task, execution] : executions_) {
    if (!execution->begun && execution->deadline_ns() <= now) tasks.push_back(task);
  }
  for (const std::uint64_t task : tasks) {
    drop(*executions_.at(task), [&](const Pending& pending) { return pending.deadline_ns <= now; },
         {Code::kDeadlineExceeded, "the deadline passed in the queue"});
    remove_if_empty(task);
  }
}

/// Answers the requests of `which`. An execution that has begun goes on with its whole batch until
/// the next block boundary.
void Dispatcher::drop(Execution& execution, const std::function<bool(const Pending&)>& which,
                      const Status& status) {
  for (auto each = execution.requests.begin(); each != execution.requests.end();) {
    if (!which(*each)) {
      ++each;
      continue;
    }
    if (execution.begun) {
      // Its items stay in the batch, so the place of the others' outputs does not change.
      if (each->done) answer(execution, *each, status, {});
      ++each;
      continue;
    }
    answer(execution, *each, status, {});
    execution.items -= each->items;
    each = execution.requests.erase(each);
  }
  if (!execution.begun && !execution.held && !execution.requests.empty()) {
    queue_.update(task_of(execution));
  }
}

void Dispatcher::remove_if_empty(std::uint64_t task) {
  const auto found = executions_.find(task);
  if (found == executions_.end() || !found->second->requests.empty()) return;
  if (!found->second->held) queue_.remove(task);
  executions_.erase(found);
}

void Dispatcher::dispatch() {
  if (stop_) return;
  while (const auto step = queue_.begin(base::monotonic_ns())) start(*step);
}

void Dispatcher::start(const scheduler::Step& step) {
  Execution& execution = *executions_.at(step.task);
  const std::uint64_t now = base::monotonic_ns();
  if (!execution.begun) {
    execution.begun = true;
    Model& model = *execution.model;
    model.waiting.fetch_sub(execution.requests.size());
    model.statistics.executed(execution.items);
    execution.instance = least_used(model);
    ++execution.instance->executions;
    for (Pending& pending : execution.requests) pending.times.begun_ns = now;
  }
  if (is_critical(execution) && !busy_) {
    busy_ = true;
    announcer_.begin_busy(execution.requests.front().request.announced, now);
  }
  if (idle_.empty()) {
    executors_.push_back(
        std::make_unique<Executor>([this](Executor& executor, const StepResult& r) {
          post([this, &executor, result = r] { step_ended(executor, result); });
        }));
    idle_.push_back(executors_.back().get());
  }
  Executor* const executor = idle_.back();
  idle_.pop_back();
  ++running_;
  executor->run(execution, step);
}

void Dispatcher::step_ended(Executor& executor, const StepResult& result) {
  --running_;
  idle_.push_back(&executor);
  Execution& execution = *executions_.at(result.step.task);
  const std::uint64_t now = base::monotonic_ns();
  queue_.end(execution.task, now);
  if (result.context_lost) lost_(result.error);
  if (result.error.empty()) {
    execution.runs.emplace_back(result.began_ns, result.ended_ns);
    Model& model = *execution.model;
    model.timing.ran(execution.items, result.step.first_block, result.step.blocks,
                     result.ended_ns - result.began_ns);
    const bool wanted = std::any_of(execution.requests.begin(), execution.requests.end(),
                                    [](const Pending& pending) { return bool(pending.done); });
    const std::size_t next = result.step.first_block + result.step.blocks;
    if (wanted && next < execution.instance->served->blocks()) return;
  }
  queue_.remove(execution.task);
  // The next step begins before the answers are written.
  dispatch();
  finish(execution, result.error.empty() ? Status{} : Status{Code::kInternal, result.error});
  --execution.instance->executions;
  executions_.erase(result.step.task);
}

/// Answers all requests of an execution that have no answer yet.
void Dispatcher::finish(Execution& execution, const Status& status) {
  std::vector<engine::Tensor> outputs;
  if (status.ok()) outputs = execution.batch->outputs();
  std::size_t first = 0;
  for (Pending& pending : execution.requests) {
    if (pending.done) {
      answer(execution, pending, status,
             status.ok() ? response_for(pending, outputs, first, execution.batch) : Response{});
    }
    first += pending.items;
  }
}

void Dispatcher::answer(const Execution& execution, Pending& pending, const Status& status,
                        const Response& response) {
  pending.times.ended_ns = base::monotonic_ns();
  pending.times.input_ns = execution.input_ns;
  pending.times.blocks_ns = 0;
  for (const auto& [begin, end] : execution.runs) pending.times.blocks_ns += end - begin;
  if (!execution.begun) execution.model->waiting.fetch_sub(1);
  const std::uint64_t announced = std::exchange(pending.request.announced, 0);
  if (announced != 0) announcer_.forget(announced);
  answer_(execution, pending, status, response);
  pending.done = nullptr;
}

/// A busy period ends when no critical request waits or runs.
void Dispatcher::note_idle() {
  if (!busy_) return;
  for (const auto& [task, execution] : executions_) {
    if (is_critical(*execution)) return;
  }
  busy_ = false;
  announcer_.end_busy();
}

void Dispatcher::set_policy(scheduler::Policy policy) {
  post([this, policy] {
    queue_.set_policy(policy, base::monotonic_ns());
    policy_ = policy;
  });
}

void Dispatcher::add_model(const std::shared_ptr<Model>& model) {
  std::promise<void> done;
  post([&] {
    queue_.add_model(model->id, model->instances.size());
    done.set_value();
  });
  done.get_future().wait();
}

void Dispatcher::remove_model(const std::shared_ptr<Model>& model) {
  std::promise<bool> done;
  const auto poll = [&] {
    std::vector<std::uint64_t> waiting;
    bool left = false;
    for (const auto& [task, execution] : executions_) {
      if (execution->model != model) continue;
      if (execution->begun) {
        left = true;
      } else {
        waiting.push_back(task);
      }
    }
    for (const std::uint64_t task : waiting) {
      drop(*executions_.at(task), [](const Pending&) { return true; },
           {Code::kUnavailable, "the model is being unloaded"});
      remove_if_empty(task);
    }
    if (!left) queue_.remove_model(model->id);
    done.set_value(!left);
  };
  while (true) {
    done = {};
    post(poll);
    if (done.get_future().get()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool Dispatcher::drain(std::uint64_t until_ns) {
  while (true) {
    std::promise<bool> empty;
    post([&] { empty.set_value(executions_.empty()); });
    if (empty.get_future().get()) return true;
    if (base::monotonic_ns() >= until_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace sluice::server
