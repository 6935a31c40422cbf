#include "scheduler/queue.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scheduler/smith.hpp"

namespace sluice::scheduler {
namespace {

std::uint64_t sum(const std::vector<std::uint64_t>& block_ns, std::size_t first) {
  return std::accumulate(block_ns.begin() + static_cast<std::ptrdiff_t>(first), block_ns.end(),
                         std::uint64_t{0});
}

/// 0 if `b` is greater.
std::uint64_t minus(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

bool begun(const Task& task) { return task.next_block > 0; }
bool done(const Task& task) { return task.next_block == task.block_ns.size(); }

}  // namespace

void Queue::set_policy(Policy policy, std::uint64_t /*now*/) {
  policy_ = policy;
  std::ranges::sort(entries_, {}, &Entry::sequence);
  std::vector<Entry> placed;
  for (Entry& entry : entries_) {
    const auto at = static_cast<std::ptrdiff_t>(place(placed, entry.task));
    placed.insert(placed.begin() + at, std::move(entry));
  }
  entries_ = std::move(placed);
}

void Queue::add_model(std::uint32_t model, std::size_t instances) { instances_[model] = instances; }

void Queue::remove_model(std::uint32_t model) {
  instances_.erase(model);
  slack_ns_.erase(model);
}

void Queue::insert(Task task, std::uint64_t now) {
  if (task.block_ns.empty()) task.block_ns = {task.whole_ns};
  if (entries_.empty()) busy_since_ns_ = now;
  const std::uint64_t patience = edf::kPatience * task.limit_ns;
  const std::uint64_t allowed =
      task.deadline_ns == kNoDeadline ? patience : minus(task.deadline_ns, task.arrival_ns);
  slack_ns_[task.model] = minus(allowed, task.whole_ns);
  const auto at = static_cast<std::ptrdiff_t>(place(entries_, task));
  entries_.insert(entries_.begin() + at, Entry{std::move(task), inserted_++, std::nullopt, 0});
}

bool Queue::remove(std::uint64_t id) {
  return std::erase_if(entries_, [&](const Entry& entry) {
           return entry.task.id == id && !entry.running;
         }) > 0;
}

bool Queue::update(const Task& task) {
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& each) { return each.task.id == task.id && !begun(each.task); });
  if (entry == entries_.end()) return false;
  entry->task.deadline_ns = task.deadline_ns;
  entry->task.limit_ns = task.limit_ns;
  entry->task.whole_ns = task.whole_ns;
  entry->task.block_ns = task.block_ns.empty() ? std::vector{task.whole_ns} : task.block_ns;
  return true;
}

std::optional<Step> Queue::begin(std::uint64_t now) {
  const auto index = next_index(now);
  if (!index) return std::nullopt;
  Entry& entry = entries_[*index];
  Task& task = entry.task;
  const std::size_t first = task.next_block;
  const bool by_block = begun(task) || (task.block_ns.size() > 1 && splits(*index, now));
  const std::size_t blocks = by_block ? 1 : task.block_ns.size();
  const std::uint64_t expected = by_block ? task.block_ns[first] : task.whole_ns;
  task.next_block += blocks;
  entry.running = Step{task.id, task.model, first, blocks, expected};
  entry.begun_ns = now;
  return entry.running;
}

void Queue::end(std::uint64_t id, std::uint64_t /*now*/) {
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& each) { return each.task.id == id && each.running; });
  if (entry == entries_.end()) return;
  entry->running.reset();
  if (done(entry->task)) entries_.erase(entry);
}

std::size_t Queue::not_begun(std::uint32_t model) const {
  return static_cast<std::size_t>(std::ranges::count_if(entries_, [&](const Entry& entry) {
    return entry.task.model == model && !begun(entry.task);
  }));
}

std::uint64_t Queue::completion_ns(const Task& task, std::uint64_t now) const {
  std::uint64_t total = running_left_ns(now);
  const auto queued =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.task.id == task.id; });
  const auto index = static_cast<std::size_t>(queued - entries_.begin());
  const bool is_new = queued == entries_.end();
  const Order order = traits_of(policy_).order;
  if (order == Order::kPlan) {
    auto tasks = waiting();
    if (is_new) tasks.emplace_back();
    tasks[index] = waiting(task);
    for (const std::size_t i : edf::plan(tasks, now + total).order) {
      total += tasks[i].left_ns;
      if (i == index) break;
    }
    return total;
  }
  const bool in_order = order != Order::kSideBySide;
  const std::size_t at = is_new || !in_order ? place(entries_, task) : index;
  for (std::size_t i = 0; i < at; ++i) {
    if (i != index) total += left_ns(entries_[i].task);
  }
  return total + left_ns(task);
}

std::uint64_t Queue::left_ns(const Task& task) const {
  const bool whole =
      task.block_ns.empty() || (!begun(task) && !traits_of(policy_).expects_blocks());
  return whole ? task.whole_ns : sum(task.block_ns, task.next_block);
}

std::uint64_t Queue::running_left_ns(std::uint64_t now) const {
  std::uint64_t left = 0;
  for (const Entry& entry : entries_) {
    if (entry.running) left += minus(entry.begun_ns + entry.running->expected_ns, now);
  }
  return left;
}

/// Where `task` goes. The published walk from the tail towards the head compares the sums of two
/// response ratios; the time that the tasks have waited cancels out, and Smith's rule is left.
std::size_t Queue::place(const std::vector<Entry>& entries, const Task& task) const {
  std::size_t at = entries.size();
  if (traits_of(policy_).order != Order::kSmith) return at;
  const Wide key = smith_key(left_ns(task), task.limit_ns);
  for (; at > 0; --at) {
    const Task& entry = entries[at - 1].task;
    if (entry.model == task.model) break;
    if (!done(entry) && key > smith_key(left_ns(entry), entry.limit_ns)) break;
  }
  return at;
}

edf::Waiting Queue::waiting(const Task& task) const {
  return {task.model, task.arrival_ns, task.deadline_ns, task.limit_ns, left_ns(task)};
}

std::vector<edf::Waiting> Queue::waiting() const {
  std::vector<edf::Waiting> tasks;
  tasks.reserve(entries_.size() + 1);
  for (const Entry& entry : entries_) tasks.push_back(waiting(entry.task));
  return tasks;
}

std::optional<std::size_t> Queue::next_index(std::uint64_t now) const {
  const auto runs = [](const Entry& entry) { return entry.running.has_value(); };
  const auto busy = [&] { return entries_.empty() || std::ranges::any_of(entries_, runs); };
  switch (traits_of(policy_).order) {
    case Order::kSideBySide:
      return next_parallel();
    case Order::kPlan:
      if (busy()) return std::nullopt;
      return edf::plan(waiting(), now).order.front();
    case Order::kArrival:
    case Order::kSmith:
      break;
  }
  return busy() ? std::nullopt : std::optional<std::size_t>(0);
}

std::optional<std::size_t> Queue::next_parallel() const {
  std::map<std::uint32_t, std::size_t> running;
  for (const Entry& entry : entries_) {
    if (entry.running) ++running[entry.task.model];
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::uint32_t model = entries_[i].task.model;
    const auto served = instances_.find(model);
    const std::size_t instances = served == instances_.end() ? 1 : served->second;
    if (!entries_[i].running && running[model] < instances) return i;
  }
  return std::nullopt;
}

bool Queue::splits(std::size_t index, std::uint64_t now) const {
  switch (traits_of(policy_).split) {
    case Split::kAlways:
      return true;
    case Split::kElastic:
      return splits_elastically(entries_[index].task);
    case Split::kForNewcomers:
      return splits_for_newcomers(index, now);
    case Split::kNever:
      break;
  }
  return false;
}

/// DLIR: only where a newcomer could overtake, and not while a second task of the model waits for
/// the time that splitting costs. docs/reference/scheduler.md says why there are two conditions.
bool Queue::splits_elastically(const Task& task) const {
  const auto idle = [&](const auto& served) {
    return served.first != task.model && std::ranges::none_of(entries_, [&](const Entry& entry) {
             return entry.task.model == served.first;
           });
  };
  return not_begun(task.model) < 2 && std::ranges::any_of(instances_, idle);
}

/// EDF: if fewer requests that may arrive meanwhile would be late, and none of those that wait.
bool Queue::splits_for_newcomers(std::size_t index, std::uint64_t now) const {
  const Task& task = entries_[index].task;
  const std::uint64_t split_ns = sum(task.block_ns, 0);
  if (split_ns <= task.whole_ns) return true;

  const auto tasks = waiting();
  const edf::Plan plan = edf::plan(tasks, now);
  std::uint64_t end_ns = now;
  for (const std::size_t i : plan.order) {
    end_ns += i == index ? split_ns : tasks[i].left_ns;
    if (plan.met[i] && end_ns > tasks[i].deadline_ns) return false;
  }

  const std::uint64_t whole = exposed_ns({task.whole_ns}, task.model);
  const std::uint64_t split = exposed_ns(task.block_ns, task.model);
  if (split >= whole) return false;
  // Splitting is free if this task is late anyway, or if another model is behind: then the late
  // tasks pay for it. Otherwise requests of the other models wait for the time that it costs: some
  // of them in a short busy period, all of them in an endless one.
  const bool others_behind = plan.behind.size() > plan.behind.count(task.model);
  if (!plan.met[index] || others_behind) return true;
  const std::uint64_t cost =
      (split_ns - task.whole_ns) * (slack_ns_.size() - slack_ns_.count(task.model));
  const std::uint64_t busy_ns = now - busy_since_ns_;
  return Wide{cost} * busy_ns < Wide{whole - split} * minus(task.deadline_ns, task.arrival_ns);
}

/// Summed over the other models: how long, during these steps, a request that arrives is late
/// because it waits for the end of the step.
std::uint64_t Queue::exposed_ns(const std::vector<std::uint64_t>& step_ns,
                                std::uint32_t model) const {
  std::uint64_t exposed = 0;
  for (const auto& [other, slack] : slack_ns_) {
    if (other == model) continue;
    for (const std::uint64_t step : step_ns) exposed += minus(step, slack);
  }
  return exposed;
}

}  // namespace sluice::scheduler
