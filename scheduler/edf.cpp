#include "scheduler/edf.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "scheduler/smith.hpp"
#include "scheduler/task.hpp"

namespace sluice::scheduler::edf {
namespace {

/// Some consecutive tasks of a model.
struct Group {
  std::vector<std::size_t> tasks;
  std::uint64_t ns = 0;

  void append(const Group& other) {
    tasks.insert(tasks.end(), other.tasks.begin(), other.tasks.end());
    ns += other.ns;
  }
};

/// The tasks of a model in their order: kept groups, then the rest. The last task of a kept group
/// meets its deadline. The tasks in front of it do not, but it has to wait for them.
struct Chain {
  std::vector<Group> kept;
  Group rest;
  std::size_t next_kept = 0;  ///< In Schedule: the first kept group that is not in the order.
  std::size_t next_rest = 0;  ///< In Schedule: the first task of `rest` that is not in the order.
  std::size_t late_end = 0;   ///< In Schedule: behind the last task of `rest` that has a deadline.

  void keep_rest() { kept.push_back(std::exchange(rest, {})); }
  void give_up_last() {
    Group last = std::move(kept.back());
    kept.pop_back();
    last.append(rest);
    rest = std::move(last);
  }
};

using Chains = std::map<std::uint32_t, Chain>;

/// Earliest deadline first. A task is as urgent as the tasks of its model that wait for it.
std::vector<std::size_t> by_deadline(const std::vector<Waiting>& tasks) {
  std::vector<std::uint64_t> deadline_ns(tasks.size());
  std::map<std::uint32_t, std::uint64_t> behind_ns;
  for (std::size_t i = tasks.size(); i-- > 0;) {
    auto& earliest = behind_ns.try_emplace(tasks[i].model, kNoDeadline).first->second;
    earliest = std::min(earliest, tasks[i].deadline_ns);
    deadline_ns[i] = earliest;
  }
  std::vector<std::size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return deadline_ns[i]; });
  return order;
}

Chain& longest_last_group(Chains& chains, Chain& own) {
  Chain* longest = &own;
  for (auto& [model, chain] : chains) {
    if (!chain.kept.empty() && chain.kept.back().ns > longest->kept.back().ns) longest = &chain;
  }
  return *longest;
}

/// Moore and Hodgson's rule: in the order of deadlines, keep every task, and whenever one would be
/// late, give up the longest. That gives up the fewest tasks if no two are of one model.
Chains keep_as_many_as_possible(const std::vector<Waiting>& tasks,
                                const std::vector<std::size_t>& order, std::uint64_t start_ns) {
  Chains chains;
  std::uint64_t end_ns = start_ns;
  for (const std::size_t i : order) {
    const Waiting& task = tasks[i];
    Chain& own = chains[task.model];
    own.rest.append({{i}, task.left_ns});
    if (task.deadline_ns == kNoDeadline) continue;
    end_ns += own.rest.ns;
    own.keep_rest();
    if (end_ns <= task.deadline_ns) continue;
    Chain& longest = longest_last_group(chains, own);
    // Not if the task waits for others of its model, or has no chance at all.
    const bool enough = end_ns - longest.kept.back().ns <= task.deadline_ns;
    Chain& given_up = enough ? longest : own;
    end_ns -= given_up.kept.back().ns;
    given_up.give_up_last();
  }
  return chains;
}

/// Puts the tasks of the chains into one order.
class Schedule {
 public:
  Schedule(const std::vector<Waiting>& tasks, Chains chains)
      : tasks_(tasks), chains_(std::move(chains)) {
    plan_.met.assign(tasks.size(), false);
    for (auto& [model, chain] : chains_) {
      for (const Group& group : chain.kept) plan_.met[group.tasks.back()] = true;
      std::size_t late = 0;
      for (std::size_t at = 0; at < chain.rest.tasks.size(); ++at) {
        if (tasks[chain.rest.tasks[at]].deadline_ns == kNoDeadline) continue;
        chain.late_end = at + 1;
        ++late;
      }
      if (late > 1) plan_.behind.insert(model);
    }
  }

  Plan make(const std::vector<std::size_t>& by_deadline, std::uint64_t start_ns) {
    std::vector<std::size_t> kept;
    std::ranges::copy_if(by_deadline, std::back_inserter(kept),
                         [&](std::size_t i) { return plan_.met[i]; });
    std::vector<std::uint64_t> slack_ns = slack_of(kept, start_ns);
    std::uint64_t overtaken_ns = 0;
    for (std::size_t k = 0; k < kept.size(); ++k) {
      while (Chain* late = overtaking(kept[k], slack_ns[k] - overtaken_ns)) {
        overtaken_ns += tasks_[head(*late)].left_ns;
        add_next_of_rest(*late);
      }
      Chain& own = chains_[tasks_[kept[k]].model];
      const auto& group = own.kept[own.next_kept++].tasks;
      plan_.order.insert(plan_.order.end(), group.begin(), group.end());
    }
    while (Chain* chain = first_of_rest()) add_next_of_rest(*chain);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] Wide key(std::size_t i) const {
    return smith_key(tasks_[i].left_ns, tasks_[i].limit_ns);
  }
  [[nodiscard]] std::size_t head(const Chain& chain) const {
    return chain.rest.tasks[chain.next_rest];
  }
  void add_next_of_rest(Chain& chain) {
    plan_.order.push_back(head(chain));
    ++chain.next_rest;
  }

  /// By how much each kept group and all those behind it can be delayed.
  std::vector<std::uint64_t> slack_of(const std::vector<std::size_t>& kept,
                                      std::uint64_t start_ns) const {
    std::vector<std::uint64_t> slack_ns;
    std::map<std::uint32_t, std::size_t> next;
    std::uint64_t end_ns = start_ns;
    for (const std::size_t i : kept) {
      const std::uint32_t model = tasks_[i].model;
      end_ns += chains_.at(model).kept[next[model]++].ns;
      slack_ns.push_back(tasks_[i].deadline_ns - end_ns);
    }
    for (std::size_t k = slack_ns.size(); k-- > 1;) {
      slack_ns[k - 1] = std::min(slack_ns[k - 1], slack_ns[k]);
    }
    return slack_ns;
  }

  /// The chain of a model that is behind, whose next late task is shorter than `kept` and fits into
  /// the slack. Null: none.
  Chain* overtaking(std::size_t kept, std::uint64_t slack_ns) {
    Chain* best = nullptr;
    for (const std::uint32_t model : plan_.behind) {
      Chain& chain = chains_[model];
      if (chain.next_kept < chain.kept.size() || chain.next_rest == chain.rest.tasks.size())
        continue;
      const std::size_t i = head(chain);
      if (tasks_[i].left_ns > slack_ns || key(i) >= key(best == nullptr ? kept : head(*best)))
        continue;
      best = &chain;
    }
    return best;
  }

  /// The chain whose next task goes first when no kept task is left. Null: none.
  Chain* first_of_rest() {
    Chain* best = nullptr;
    for (auto& [model, chain] : chains_) {
      if (chain.next_rest == chain.rest.tasks.size()) continue;
      if (best == nullptr || before(chain, *best)) best = &chain;
    }
    return best;
  }
  [[nodiscard]] bool before(const Chain& one, const Chain& other) const {
    const bool late = one.next_rest < one.late_end;
    if (late != (other.next_rest < other.late_end)) return late;
    if (late) return key(head(one)) < key(head(other));
    return patience_ns(head(one)) < patience_ns(head(other));
  }
  [[nodiscard]] std::uint64_t patience_ns(std::size_t i) const {
    return tasks_[i].arrival_ns + kPatience * tasks_[i].limit_ns;
  }

  const std::vector<Waiting>& tasks_;
  Chains chains_;
  Plan plan_;
};

}  // namespace

Plan plan(const std::vector<Waiting>& tasks, std::uint64_t start_ns) {
  const auto order = by_deadline(tasks);
  return Schedule(tasks, keep_as_many_as_possible(tasks, order, start_ns)).make(order, start_ns);
}

}  // namespace sluice::scheduler::edf
