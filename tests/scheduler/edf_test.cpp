// EDF against every order of up to six tasks.
#include "scheduler/edf.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/scheduler/tasks.hpp"

namespace sluice::scheduler {
namespace {

using Ids = std::vector<std::uint64_t>;
using Order = std::vector<std::size_t>;

constexpr std::uint64_t kStart = 1000;

bool keeps_models_in_order(const std::vector<edf::Waiting>& tasks, const Order& order) {
  for (std::size_t a = 0; a < order.size(); ++a) {
    for (std::size_t b = a + 1; b < order.size(); ++b) {
      if (order[a] > order[b] && tasks[order[a]].model == tasks[order[b]].model) return false;
    }
  }
  return true;
}

/// By index: whether the task ends before its deadline.
std::vector<bool> met(const std::vector<edf::Waiting>& tasks, const Order& order) {
  std::vector<bool> result(tasks.size());
  std::uint64_t end = kStart;
  for (const std::size_t i : order) {
    end += tasks[i].left_ns;
    result[i] = end <= tasks[i].deadline_ns;
  }
  return result;
}

std::size_t late(const std::vector<edf::Waiting>& tasks, const Order& order) {
  return static_cast<std::size_t>(std::ranges::count(met(tasks, order), false));
}

std::size_t fewest_late(const std::vector<edf::Waiting>& tasks) {
  Order order(tasks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::size_t fewest = tasks.size();
  do {
    if (keeps_models_in_order(tasks, order)) fewest = std::min(fewest, late(tasks, order));
  } while (std::ranges::next_permutation(order).found);
  return fewest;
}

class RandomTasks {
 public:
  std::uint64_t between(std::uint64_t min, std::uint64_t max) {
    return std::uniform_int_distribution<std::uint64_t>(min, max)(engine_);
  }
  /// From hopeless to easy. models: as many as tasks gives each task its own.
  std::vector<edf::Waiting> make(std::size_t count, std::uint32_t models) {
    const std::uint64_t room = between(20, 400);
    std::vector<edf::Waiting> tasks;
    for (std::uint32_t i = 0; i < count; ++i) {
      edf::Waiting each;
      each.model = models == count ? i : static_cast<std::uint32_t>(between(1, models));
      each.arrival_ns = between(0, kStart);
      each.left_ns = between(1, 100);
      each.limit_ns = between(1, 100);
      each.deadline_ns = between(1, 10) == 1 ? kNoDeadline : kStart + between(0, room) - 5;
      tasks.push_back(each);
    }
    return tasks;
  }

 private:
  std::mt19937_64 engine_{11};
};

TEST(EdfPlan, IsAnOrderThatKeepsEachModelInOrderAndItsPromises) {
  RandomTasks random;
  for (int run = 0; run < 20'000; ++run) {
    const auto tasks = random.make(random.between(1, 12), 3);
    const edf::Plan plan = edf::plan(tasks, kStart);
    Order sorted = plan.order;
    std::ranges::sort(sorted);
    Order all(tasks.size());
    std::iota(all.begin(), all.end(), 0U);
    ASSERT_EQ(sorted, all);
    ASSERT_TRUE(keeps_models_in_order(tasks, plan.order)) << "run " << run;
    const auto found = met(tasks, plan.order);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      EXPECT_TRUE(found[i] || !plan.met[i]) << "run " << run << " task " << i;
    }
  }
}

TEST(EdfPlan, MeetsAllDeadlinesIfAnyOrderDoes) {
  RandomTasks random;
  int possible = 0;
  for (int run = 0; run < 10'000; ++run) {
    const auto tasks = random.make(random.between(2, 6), 3);
    if (fewest_late(tasks) > 0) continue;
    ++possible;
    ASSERT_EQ(late(tasks, edf::plan(tasks, kStart).order), 0U) << "run " << run;
  }
  EXPECT_GT(possible, 1'000) << "the test says nothing";
}

TEST(EdfPlan, HasTheFewestLateTasksIfEachHasItsOwnModel) {
  RandomTasks random;
  for (int run = 0; run < 5'000; ++run) {
    const std::size_t count = random.between(2, 6);
    const auto tasks = random.make(count, static_cast<std::uint32_t>(count));
    ASSERT_EQ(late(tasks, edf::plan(tasks, kStart).order), fewest_late(tasks)) << "run " << run;
  }
}

// With an order within the models, the fewest late tasks are NP-hard to find.
TEST(EdfPlan, HasAtMostTwoMoreLateTasksThanTheBestOrderWithinModels) {
  RandomTasks random;
  std::array<int, 3> runs{};
  for (int run = 0; run < 10'000; ++run) {
    const auto tasks = random.make(random.between(2, 6), 3);
    const std::size_t over = late(tasks, edf::plan(tasks, kStart).order) - fewest_late(tasks);
    ASSERT_LT(over, runs.size()) << "run " << run;
    ++runs[over];
  }
  EXPECT_GT(runs[0], 9'500);
}

Ids edf_order(const std::vector<Task>& tasks, std::uint64_t now = 0) {
  Queue queue(Policy::kEdf);
  for (const Task& each : tasks) queue.insert(each, now);
  return order(queue, now);
}

TEST(Edf, RunsTheEarliestDeadlineFirst) {
  EXPECT_EQ(edf_order({task(1, 1, {10}, 300), task(2, 2, {10}, 100), task(3, 3, {10}, 200)}),
            (Ids{2, 3, 1}));
}

// Prevents: the domino effect, in which a task that cannot be met makes all others late too.
TEST(Edf, ALateTaskDelaysNoneThatCanBeMet) {
  EXPECT_EQ(edf_order({task(1, 1, {50}, 40), task(2, 2, {50}, 50), task(3, 3, {50}, 100)}),
            (Ids{2, 3, 1}));
}

TEST(Edf, GivesUpTheLongestTaskWhenNotAllCanBeMet) {
  EXPECT_EQ(edf_order({task(1, 1, {50}, 60), task(2, 2, {30}, 70), task(3, 3, {30}, 80)}),
            (Ids{2, 3, 1}));
}

TEST(Edf, AnUrgentTaskPullsThoseOfItsModelThatAreInFront) {
  EXPECT_EQ(edf_order({task(1, 1, {10}), task(2, 1, {10}, 300), task(3, 1, {10}, 50),
                       task(4, 2, {10}, 100)}),
            (Ids{1, 2, 3, 4}));
}

TEST(Edf, TasksWithoutADeadlineComeLast) {
  EXPECT_EQ(edf_order({task(1, 1, {10}), task(2, 2, {90}, 50), task(3, 3, {10}, 200)}),
            (Ids{3, 2, 1}));
}

// Prevents: a long model without a deadline starves behind short ones that never stop coming.
TEST(Edf, TasksWithoutADeadlineOvertakeForAWhileOnly) {
  const auto at = [](Task each, std::uint64_t arrival) {
    each.arrival_ns = arrival;
    return each;
  };
  EXPECT_EQ(
      edf_order({at(task(1, 1, {50}), 0), at(task(2, 2, {10}), 399), at(task(3, 3, {10}), 401)},
                500),
      (Ids{2, 1, 3}));
}

TEST(Edf, LateTasksRunByTheirResponseRatio) {
  Task latest = task(3, 3, {30}, 480);
  latest.arrival_ns = 470;
  EXPECT_EQ(edf_order({task(1, 1, {50}, 10), task(2, 2, {40}, 10), latest}, 500), (Ids{3, 2, 1}));
}

// Prevents: one burst makes a short model late for as long as a long one always has slack.
TEST(Edf, AModelThatIsBehindCatchesUpWhereNobodyBecomesLate) {
  const auto first = [](std::uint64_t long_deadline) {
    return edf_order({task(1, 1, {10}, 5), task(2, 1, {10}, 5), task(3, 2, {50}, long_deadline)})
        .front();
  };
  EXPECT_EQ(first(60), 1U);
  EXPECT_EQ(first(59), 3U) << "no slack";
  EXPECT_EQ(edf_order({task(1, 1, {10}, 5), task(2, 2, {50}, 60)}).front(), 2U)
      << "one late task is not behind";
}

/// Costs 20 to split.
Task divisible(std::uint64_t id, std::uint64_t deadline_ns, std::uint64_t arrival_ns = 0) {
  Task made = task(id, 1, {60, 60}, deadline_ns);
  made.arrival_ns = arrival_ns;
  made.whole_ns = 100;
  return made;
}

class EdfSplit : public testing::Test {
 protected:
  /// A request of `model` with this slack has been there and is gone.
  void seen(std::uint32_t model, std::uint64_t slack_ns) {
    queue_.insert(task(99, model, {10}, slack_ns + 10), 0);
    queue_.remove(99);
  }
  Queue queue_{Policy::kEdf};
};

TEST_F(EdfSplit, RunsWholeIfNoRequestCouldBeLateForIt) {
  queue_.insert(divisible(1, 400), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 2U) << "no other model";
  queue_.end(1, 100);
  seen(2, 100);
  queue_.insert(divisible(2, 400), 100);
  EXPECT_EQ(queue_.begin(100)->blocks, 2U) << "the other model can wait";
}

TEST_F(EdfSplit, SplitsForARequestThatCouldNotWait) {
  seen(2, 50);
  queue_.insert(divisible(1, 400), 0);
  EXPECT_EQ(queue_.begin(0), (Step{1, 1, 0, 1, 60}));
}

TEST_F(EdfSplit, RunsWholeIfTheBlocksAreTooLongToHelp) {
  seen(2, 0);
  queue_.insert(divisible(1, 400), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 2U);
}

TEST_F(EdfSplit, ForgetsAModelThatIsRemoved) {
  queue_.add_model(2);
  seen(2, 50);
  queue_.remove_model(2);
  queue_.insert(divisible(1, 400), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 2U);
}

TEST_F(EdfSplit, RunsWholeIfSplittingMakesATaskLate) {
  seen(2, 50);
  queue_.insert(divisible(1, 119), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 2U) << "itself";
  queue_.end(1, 100);
  queue_.insert(divisible(2, 500), 100);
  queue_.insert(task(3, 3, {400}, 610), 100);
  EXPECT_EQ(queue_.begin(100)->blocks, 2U) << "one that waits";
}

TEST_F(EdfSplit, RunsWholeInALongBusyPeriod) {
  seen(2, 50);
  queue_.insert(task(1, 3, {800}, 5000), 0);
  ASSERT_TRUE(queue_.begin(0));
  queue_.insert(divisible(2, 1200, 700), 700);
  queue_.end(1, 800);
  EXPECT_EQ(queue_.begin(800)->blocks, 2U);
}

TEST_F(EdfSplit, SplitsALateTaskInALongBusyPeriod) {
  seen(2, 50);
  queue_.insert(task(1, 3, {800}, 5000), 0);
  ASSERT_TRUE(queue_.begin(0));
  queue_.insert(divisible(2, 801, 700), 700);
  queue_.end(1, 800);
  EXPECT_EQ(queue_.begin(800)->blocks, 1U);
}

TEST_F(EdfSplit, SplitsInALongBusyPeriodIfLateTasksPayForIt) {
  seen(2, 50);
  queue_.insert(task(1, 3, {800}, 5000), 0);
  ASSERT_TRUE(queue_.begin(0));
  queue_.insert(divisible(2, 1200, 700), 700);
  for (const std::uint64_t id : {3, 4}) queue_.insert(task(id, 4, {500}, 900), 700);
  queue_.end(1, 800);
  EXPECT_EQ(queue_.begin(800), (Step{2, 1, 0, 1, 60}));
}

TEST_F(EdfSplit, AlwaysSplitsWhereThatIsFree) {
  queue_.insert(task(1, 1, {60, 60}, 130), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 1U);
}

}  // namespace
}  // namespace sluice::scheduler
