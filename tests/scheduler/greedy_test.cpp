// BNST, OYST and DLIR against the published walk, written here as it was published.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "scheduler/queue.hpp"
#include "tests/scheduler/tasks.hpp"

namespace sluice::scheduler {
namespace {

using Ids = std::vector<std::uint64_t>;
__extension__ using Integer = __int128;

struct Request {
  std::uint64_t id;
  std::uint32_t model;
  Integer arrival, left, limit;
};

/// (wait + time since the arrival + left) / limit.
struct Ratio {
  Integer above, below;
};
Ratio ratio(const Request& request, Integer wait, Integer now) {
  return {wait + (now - request.arrival) + request.left, request.limit};
}
/// a + b > c + d, exactly. a and c have one denominator, b and d the other.
bool sum_greater(Ratio a, Ratio b, Ratio c, Ratio d) {
  return (a.above - c.above) * b.below > (d.above - b.above) * a.below;
}

/// list.front() is the head, which runs next.
void published_insert(std::vector<Request>& list, const Request& newcomer, Integer now) {
  Integer wait = 0;
  for (const Request& each : list) wait += each.left;
  std::size_t at = list.size();
  while (at > 0) {
    const Request& entry = list[at - 1];
    if (entry.model == newcomer.model) break;
    const Integer in_front_ns = wait - entry.left;
    const Ratio new_behind = ratio(newcomer, wait, now);
    const Ratio new_in_front = ratio(newcomer, in_front_ns, now);
    const Ratio entry_in_front = ratio(entry, in_front_ns, now);
    const Ratio entry_behind = ratio(entry, in_front_ns + newcomer.left, now);
    if (sum_greater(new_in_front, entry_behind, new_behind, entry_in_front)) break;
    wait = in_front_ns;
    --at;
  }
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), newcomer);
}

class Random {
 public:
  std::uint64_t upto(std::uint64_t max) {
    return std::uniform_int_distribution<std::uint64_t>(1, max)(engine_);
  }

 private:
  std::mt19937_64 engine_{7};
};

TEST(Greedy, OrdersAsThePublishedWalk) {
  Random random;
  for (int run = 0; run < 100'000; ++run) {
    // Small numbers meet ties, large ones overflow a product of 64 bits.
    const std::uint64_t max = run % 2 == 0 ? 4 : 20'000'000'000;
    Queue queue(run % 3 == 0 ? Policy::kBnst : Policy::kOyst);
    std::vector<Request> list;
    std::uint64_t now = 0;
    for (std::uint64_t id = 0; id < 6; ++id) {
      now += random.upto(max);
      Task each = task(id, static_cast<std::uint32_t>(random.upto(4)), {random.upto(max)});
      each.arrival_ns = now - random.upto(now);
      each.limit_ns = random.upto(max);
      queue.insert(each, now);
      published_insert(list, {id, each.model, each.arrival_ns, each.whole_ns, each.limit_ns}, now);
    }
    Ids published;
    for (const Request& each : list) published.push_back(each.id);
    ASSERT_EQ(order(queue, now), published) << "run " << run;
  }
}

/// Sum of the response ratios x the product of all limits.
Integer cost(const std::vector<Task>& tasks, const std::vector<std::size_t>& order) {
  Integer all = 1;
  for (const Task& each : tasks) all *= each.limit_ns;
  Integer sum = 0;
  Integer end = 0;
  for (const std::size_t i : order) {
    end += tasks[i].whole_ns;
    sum += end * (all / tasks[i].limit_ns);
  }
  return sum;
}

TEST(Greedy, HasTheLeastSumOfResponseRatiosOfAllOrders) {
  Random random;
  for (int run = 0; run < 2'000; ++run) {
    const std::size_t count = random.upto(6);
    Queue queue(Policy::kBnst);
    std::vector<Task> tasks;
    std::array<std::uint64_t, 4> length{};
    for (std::uint64_t& each : length) each = random.upto(100);
    for (std::uint64_t id = 0; id < count; ++id) {
      const auto model = static_cast<std::uint32_t>(random.upto(4));
      tasks.push_back(task(id, model, {length[model - 1]}));
      queue.insert(tasks.back(), 0);
    }
    std::vector<std::size_t> permutation(count);
    std::iota(permutation.begin(), permutation.end(), 0U);
    Integer best = cost(tasks, permutation);
    while (std::ranges::next_permutation(permutation).found) {
      best = std::min(best, cost(tasks, permutation));
    }
    const Ids found = order(queue);
    EXPECT_TRUE(cost(tasks, {found.begin(), found.end()}) == best) << "run " << run;
  }
}

// Prevents: the part of a preempted task that has already run counts in the comparison.
TEST(Greedy, ComparesWhatIsLeft) {
  Queue queue(Policy::kOyst);
  queue.insert(task(1, 1, {90, 10}), 0);
  ASSERT_TRUE(queue.begin(0));
  Task newcomer = task(2, 2, {20});
  newcomer.limit_ns = 100;
  queue.insert(newcomer, 10);
  queue.end(1, 90);
  EXPECT_EQ(queue.begin(90)->task, 1U);
}

class Dlir : public testing::Test {
 protected:
  Dlir() {
    queue_.add_model(1);
    queue_.add_model(2);
    queue_.add_model(3);
  }
  Queue queue_{Policy::kDlir};
};

TEST_F(Dlir, SplitsWhileAnotherModelIsIdle) {
  queue_.insert(task(1, 1, {10, 10}), 0);
  queue_.insert(task(2, 2, {50}), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 1U);
}

TEST_F(Dlir, RunsWholeIfNoNewcomerCanOvertake) {
  queue_.insert(task(1, 1, {10, 10}), 0);
  queue_.insert(task(2, 2, {50}), 0);
  queue_.insert(task(3, 3, {50}), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 2U);
}

TEST_F(Dlir, IsAloneWithoutOtherModels) {
  queue_.remove_model(2);
  queue_.remove_model(3);
  queue_.insert(task(1, 1, {10, 10}), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 2U);
}

// Prevents: splitting costs more time than there is, and the queue of a long model grows
// indefinitely.
TEST_F(Dlir, RunsWholeWhileASecondTaskOfTheModelWaits) {
  queue_.insert(task(1, 1, {10, 10}), 0);
  queue_.insert(task(2, 1, {10, 10}), 0);
  EXPECT_EQ(queue_.begin(0)->blocks, 2U);
  queue_.end(1, 20);
  EXPECT_EQ(queue_.begin(20)->blocks, 1U);
}

TEST_F(Dlir, OnceBegunInBlocksGoesOnInBlocks) {
  queue_.insert(task(1, 1, {10, 10, 10}), 0);
  ASSERT_EQ(queue_.begin(0)->blocks, 1U);
  queue_.insert(task(2, 2, {500}), 0);
  queue_.insert(task(3, 3, {500}), 0);
  queue_.end(1, 10);
  EXPECT_EQ(queue_.begin(10), (Step{1, 1, 1, 1, 10}));
}

}  // namespace
}  // namespace sluice::scheduler
