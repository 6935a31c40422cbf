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

std::uint64_t bytes_of(const std::vector<engine::Tensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const engine::Tensor& tensor : tensors) bytes += tensor.data.size();
  return bytes;
}

/// The order of requests of one model: 1 is first, and 0, the default, is last.
std::uint32_t rank(const Pending& pending) { return pending.request.priority - 1; }

bool fits(const Execution& execution, const Pending& pending) {
  if (execution.requests.empty()) return true;
  return execution.items + pending.items <= execution.model->config.batch_size &&
         same_items(execution.requests.front().request.inputs, pending.request.inputs);
}

Response response_for(const Pending& pending, const std::vector<engine::Tensor>& outputs,
                      std::size_t first, const std::shared_ptr<const void>& storage) {
  Response response;
  response.storage = storage;
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

/// What the scheduler knows of `items` items of a model.
scheduler::Task task_for(const Model& model, std::size_t items) {
  scheduler::Task task;
  task.model = model.id;
  task.limit_ns = model.limits.ns(items);
  task.block_ns = model.timing.block_ns(items);
  task.whole_ns = model.timing.whole_ns(items);
  return task;
}

bool is_critical(const Execution& execution) { return execution.model->config.priority > 0; }

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options, Announcer& announcer,
                       const ByteBudget& memory, Answer answer, Lost lost,
                       memory::Residency* residency)
    : admit_factor_(options.admit_factor),
      run_late_(options.run_late),
      announcer_(announcer),
      memory_(memory),
      answer_(std::move(answer)),
      lost_(std::move(lost)),
      residency_(residency),
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

void Dispatcher::post_and_wait(const Message& message) {
  std::promise<void> done;
  post([&] {
    message();
    done.set_value();
  });
  done.get_future().wait();
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
    if (execution->running) continue;
    if (!run_late_) wake_ns = std::min(wake_ns, execution->deadline_ns());
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
  Execution* const behind = first_behind(*model, pending);
  Execution* joins = behind == nullptr ? open_batch(*model, pending) : nullptr;
  Status status = behind == nullptr ? admit(*model, pending, joins, now)
                                    : admit_ahead_of(*behind, pending, now);
  if (!status.ok() && joins != nullptr) {
    // With this request the batch would be late: a batch of its own may not be.
    joins = nullptr;
    status = admit(*model, pending, joins, now);
  }
  if (model->removed) status = {Code::kUnavailable, "the model has been unloaded"};
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
    return {Code::kDeadlineExceeded, "the deadline had passed when the request was read"};
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
          late_ns / 1e6};
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

void Dispatcher::cancel(std::uint64_t request) {
  post([this, request] {
    for (auto& [task, execution] : executions_) {
      const bool here = std::any_of(execution->requests.begin(), execution->requests.end(),
                                    [&](const Pending& pending) { return pending.id == request; });
      if (!here) continue;
      drop(*execution, [&](const Pending& pending) { return pending.id == request; },
           {Code::kCancelled, "the client is gone"});
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
         {Code::kDeadlineExceeded, "the deadline passed in the queue"});
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
  if (!execution.begun && execution.in_queue() && !execution.requests.empty()) {
    queue_.update(task_of(execution));
  }
}

void Dispatcher::remove_if_unwanted(std::uint64_t task) {
  const auto found = executions_.find(task);
  if (found == executions_.end() || found->second->running || found->second->wanted()) return;
  if (found->second->in_queue()) queue_.remove(task);
  give_up_weights(*found->second);
  if (found->second->begun) --found->second->instance->executions;
  executions_.erase(found);
}

void Dispatcher::dispatch() {
  if (stop_) return;
  while (const auto step = queue_.begin(base::monotonic_ns())) start(*step);
}

void Dispatcher::start(const scheduler::Step& step) {
  Execution& execution = *executions_.at(step.task);
  const std::uint64_t now = base::monotonic_ns();
  execution.running = true;
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
  executor->run(execution, step);
}

void Dispatcher::step_ended(Executor& executor, const StepResult& result) {
  idle_.push_back(&executor);
  Execution& execution = *executions_.at(result.step.task);
  queue_.end(execution.task, base::monotonic_ns());
  if (result.context_lost) lost_(result.error);
  if (result.error.empty()) {
    execution.runs.emplace_back(result.began_ns, result.ended_ns);
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
  drop_overdue(base::monotonic_ns());
  dispatch();
  execution.running = false;
  answer_dropped(execution);
  finish(execution, result.error.empty() ? Status{} : Status{Code::kInternal, result.error});
  executions_.erase(result.step.task);
}

/// Answers all requests of an execution that have no answer yet.
void Dispatcher::finish(Execution& execution, Status status) {
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
             status.ok() ? response_for(pending, outputs, first, storage) : Response{});
    }
    first += pending.items;
  }
}

void Dispatcher::answer(const Execution& execution, Pending& pending, const Status& status,
                        const Response& response) {
  pending.times.ended_ns = base::monotonic_ns();
  pending.times.input_ns = execution.input_ns;
  pending.times.blocks_ns = execution.blocks_ns();
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
  post_and_wait([&] {
    queue_.set_policy(policy, base::monotonic_ns());
    policy_ = policy;
  });
}

void Dispatcher::add_model(const std::shared_ptr<Model>& model) {
  post_and_wait([&] { queue_.add_model(model->id, model->instances.size()); });
}

void Dispatcher::remove_model(const std::shared_ptr<Model>& model) {
  bool left = true;
  const auto poll = [&] {
    std::vector<std::uint64_t> waiting;
    left = false;
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
      remove_if_unwanted(task);
    }
    model->removed = true;
    if (!left) queue_.remove_model(model->id);
  };
  while (true) {
    post_and_wait(poll);
    if (!left) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool Dispatcher::drain(std::uint64_t until_ns) {
  while (true) {
    bool empty = false;
    post_and_wait([&] { empty = executions_.empty(); });
    if (empty) return true;
    if (base::monotonic_ns() >= until_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace sluice::server
