// Where the waits of a graph go, in chains and in random graphs.
#include "intercept/pacing/graph_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace sluice::intercept {
namespace {

using Kind = GraphShape::Kind;

constexpr std::uint64_t kSpacing = 200;

void add(GraphShape& shape, std::uint64_t cost, std::vector<std::size_t> before,
         Kind kind = Kind::kKernel) {
  GraphShape::Node& node = shape.nodes.emplace_back();
  node.kind = kind;
  node.cost = kind == Kind::kKernel ? cost : 0;
  node.before = std::move(before);
}

GraphShape chain(const std::vector<std::uint64_t>& costs) {
  GraphShape shape;
  for (const std::uint64_t cost : costs) {
    add(shape, cost,
        shape.nodes.empty() ? std::vector<std::size_t>{}
                            : std::vector<std::size_t>{shape.nodes.size() - 1});
  }
  return shape;
}

std::vector<std::size_t> waits(const WaitPattern& pattern) {
  std::vector<std::size_t> found;
  for (const WaitPattern::Wait& wait : pattern.waits) found.push_back(wait.node);
  return found;
}

using Nodes = std::vector<std::size_t>;

TEST(GraphPlan, AChainIsDividedIntoStretchesOfTheSpacing) {
  EXPECT_EQ(waits(plan_waits(chain({50, 50, 50, 50, 50, 50}), {kSpacing}).pattern), Nodes{4});
  EXPECT_EQ(waits(plan_waits(chain({1, 1, 1, 1, 1}), {2}).pattern), (Nodes{2, 4}));
}

TEST(GraphPlan, ALongKernelHasAWaitInFrontAndBehind) {
  EXPECT_EQ(waits(plan_waits(chain({50, 500, 50, 50}), {kSpacing}).pattern), (Nodes{1, 2}));
  EXPECT_EQ(waits(plan_waits(chain({500}), {kSpacing}).pattern), Nodes{})
      << "the launch itself has a wait in front";
}

// Branches run at the same time: their kernels share a stretch.
TEST(GraphPlan, BranchesHaveOneAccount) {
  GraphShape shape;
  add(shape, 50, {});
  for (int i = 0; i < 2; ++i) add(shape, 100, {0});
  for (std::size_t i = 1; i < 3; ++i) add(shape, 30, {i});
  add(shape, 30, {3, 4});
  EXPECT_EQ(waits(plan_waits(shape, {kSpacing}).pattern), (Nodes{2, 3}));
}

// The kernels of two devices: a wait stops only those of its own device.
TEST(GraphPlan, EachGateHasStretchesOfItsOwn) {
  GraphShape shape = chain({100, 100, 100, 100, 100, 100, 100});
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) shape.nodes[i].gate = i % 2;
  shape.nodes[6].gate = GraphShape::kNoGate;
  const WaitPattern pattern = plan_waits(shape, {100, 200}).pattern;
  EXPECT_EQ(waits(pattern), (Nodes{2, 4, 5}));
  EXPECT_EQ(pattern.waits[0].gate + pattern.waits[1].gate, 0U);
  EXPECT_EQ(pattern.waits[2].gate, 1U);
}

// A short child graph is one kernel for its own device only, and for none if it has kernels of two.
TEST(GraphPlan, AChildGraphBelongsToTheGatesOfItsKernels) {
  GraphShape shape = chain({150});
  shape.nodes[0].gate = 1;
  add(shape, 0, {0}, Kind::kChild);
  shape.nodes[1].child = std::make_unique<GraphShape>(chain({40, 40}));
  for (GraphShape::Node& node : shape.nodes[1].child->nodes) node.gate = 1;
  const WaitPattern one = plan_waits(shape, {kSpacing, kSpacing}).pattern;
  ASSERT_EQ(waits(one), Nodes{1});
  EXPECT_EQ(one.waits[0].gate, 1U);
  shape.nodes[1].child->nodes[0].gate = 0;
  EXPECT_EQ(plan_waits(shape, {kSpacing, kSpacing}).pattern.count(), 0U);
  shape.nodes[0].cost = 190;
  const WaitPattern mixed = plan_waits(shape, {kSpacing, kSpacing}).pattern;
  EXPECT_EQ(waits(mixed), Nodes{});
  EXPECT_EQ(waits(mixed.children[0].pattern), Nodes{1});
}

TEST(GraphPlan, AWaitGoesIntoTheChildGraph) {
  GraphShape shape = chain({150});
  add(shape, 0, {0}, Kind::kChild);
  shape.nodes[1].child = std::make_unique<GraphShape>(chain({40, 170}));
  add(shape, 20, {1});
  add(shape, 20, {2});
  const WaitPlan plan = plan_waits(shape, {kSpacing});
  EXPECT_EQ(waits(plan.pattern), Nodes{3}) << "170 of the stretch are spent in the child";
  ASSERT_EQ(plan.pattern.children.size(), 1U);
  EXPECT_EQ(waits(plan.pattern.children[0].pattern), Nodes{1});
  EXPECT_EQ(plan.pattern.count(), 2U);
}

TEST(GraphPlan, AChildGraphOfASpacingIsLikeAKernel) {
  GraphShape shape = chain({150});
  add(shape, 0, {0}, Kind::kChild);
  shape.nodes[1].child = std::make_unique<GraphShape>(chain({40, 40}));
  add(shape, 150, {1});
  add(shape, 20, {2});
  const WaitPlan plan = plan_waits(shape, {kSpacing});
  EXPECT_EQ(waits(plan.pattern), (Nodes{1, 2}));
  ASSERT_EQ(plan.pattern.children.size(), 1U);
  EXPECT_EQ(plan.pattern.children[0].pattern.count(), 0U) << "to be set anew without a thought";
  EXPECT_TRUE(plan.bounded);
}

// The bodies of a conditional node hold no waits and may run for any time.
TEST(GraphPlan, AConditionalNodeHasAWaitInFrontAndBehind) {
  GraphShape shape = chain({10});
  add(shape, 0, {0}, Kind::kConditional);
  add(shape, 10, {1});
  add(shape, 10, {2});
  const WaitPlan plan = plan_waits(shape, {kSpacing});
  EXPECT_EQ(waits(plan.pattern), (Nodes{1, 2}));
  EXPECT_FALSE(plan.bounded);
}

TEST(GraphPlan, AKernelThatMayNotWaitLeavesTheWaitToTheNext) {
  GraphShape shape = chain({150, 150, 20});
  shape.nodes[1].may_wait = false;
  const WaitPlan plan = plan_waits(shape, {kSpacing});
  EXPECT_EQ(waits(plan.pattern), Nodes{2});
  EXPECT_TRUE(plan.bounded);
}

TEST(GraphPlan, AGraphThatMayWaitNowhereIsNotBounded) {
  GraphShape shape = chain({150, 150, 150, 150});
  for (GraphShape::Node& node : shape.nodes) node.may_wait = false;
  EXPECT_FALSE(plan_waits(shape, {kSpacing}).bounded);
}

class RandomGraph : public testing::TestWithParam<unsigned> {
 protected:
  GraphShape make() {
    GraphShape shape;
    const auto size = std::uniform_int_distribution<std::size_t>(1, 60)(random_);
    for (std::size_t i = 0; i < size; ++i) {
      std::vector<std::size_t> before;
      const auto edges = std::uniform_int_distribution<std::size_t>(0, 3)(random_);
      for (std::size_t e = 0; e < std::min(edges, i); ++e) {
        const std::size_t from = std::uniform_int_distribution<std::size_t>(0, i - 1)(random_);
        if (std::find(before.begin(), before.end(), from) == before.end()) before.push_back(from);
      }
      const bool copy = random_() % 6 == 0;
      add(shape, 1 + random_() % 300, before, copy ? Kind::kOther : Kind::kKernel);
    }
    return shape;
  }
  std::mt19937 random_{GetParam()};
};

/// The sums of the kernels that are connected by edges without a wait. Nodes without dependencies
/// are connected too, because all of them start with the graph.
std::vector<std::vector<std::size_t>> pieces(const GraphShape& shape, const WaitPattern& pattern) {
  std::vector<std::size_t> piece(shape.nodes.size() + 1);
  for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = i;
  const auto root = [&](std::size_t i) {
    while (piece[i] != i) i = piece[i];
    return i;
  };
  std::set<std::size_t> guarded;
  for (const WaitPattern::Wait& wait : pattern.waits) guarded.insert(wait.node);
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) {
    if (guarded.contains(i)) continue;
    if (shape.nodes[i].before.empty()) piece[root(i)] = root(shape.nodes.size());
    for (const std::size_t before : shape.nodes[i].before) {
      // A copy may connect two pieces: it needs no wait, and the kernel behind it has one.
      if (shape.nodes[i].kind == Kind::kKernel) piece[root(i)] = root(before);
    }
  }
  std::map<std::size_t, std::vector<std::size_t>> found;
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) found[root(i)].push_back(i);
  std::vector<std::vector<std::size_t>> all;
  for (auto& [key, nodes] : found) all.push_back(std::move(nodes));
  return all;
}

// The bound that the documentation states.
TEST_P(RandomGraph, NoPieceWithoutAWaitIsLongerThanTheSpacingOrOneKernel) {
  const GraphShape shape = make();
  const WaitPlan plan = plan_waits(shape, {kSpacing});
  EXPECT_TRUE(plan.bounded);
  for (const std::vector<std::size_t>& piece : pieces(shape, plan.pattern)) {
    std::uint64_t sum = 0;
    std::size_t kernels = 0;
    for (const std::size_t node : piece) {
      sum += shape.nodes[node].cost;
      kernels += shape.nodes[node].kind == Kind::kKernel ? 1 : 0;
    }
    if (kernels > 1) {
      EXPECT_LE(sum, kSpacing);
    }
  }
}

// Waits cost GPU time: no two neighbouring pieces of a chain may fit into one.
TEST_P(RandomGraph, AChainHasNoWaitTooMany) {
  std::vector<std::uint64_t> costs(40);
  for (std::uint64_t& cost : costs) cost = 1 + random_() % 120;
  std::vector<std::size_t> begins = waits(plan_waits(chain(costs), {kSpacing}).pattern);
  begins.insert(begins.begin(), 0);
  for (std::size_t i = 1; i < begins.size(); ++i) {
    std::uint64_t sum = costs[begins[i]];
    for (std::size_t k = begins[i - 1]; k < begins[i]; ++k) sum += costs[k];
    EXPECT_GT(sum, kSpacing);
  }
}

INSTANTIATE_TEST_SUITE_P(GraphPlan, RandomGraph, testing::Range(0U, 50U));

constexpr std::uint64_t kSpacingNs = 200'000;
constexpr GpuSize kGpu{100, 2048, 200'000};

Work kernel(std::uintptr_t function, unsigned blocks, unsigned threads, unsigned shared = 0) {
  Work work;
  work.function = reinterpret_cast<CUfunction>(function);
  work.grid = {blocks, 1, 1};
  work.block = {threads, 1, 1};
  work.shared_bytes = shared;
  return work;
}

TEST(GraphEstimates, AKernelThatFillsTheGpuCountsMore) {
  const GraphEstimates estimates;
  EXPECT_EQ(estimates.of(kernel(1, 1, 32), kGpu, kSpacingNs), 25'000U);
  EXPECT_EQ(estimates.of(kernel(1, 100, 2048), kGpu, kSpacingNs), 100'000U);
  EXPECT_EQ(estimates.of(kernel(1, 100, 384, 200'000), kGpu, kSpacingNs), 100'000U);
  EXPECT_EQ(estimates.of(kernel(1, 60'000, 1024), kGpu, kSpacingNs), kSpacingNs + 1);
}

TEST(GraphEstimates, KernelsShareWhatTheirGraphTakes) {
  GraphEstimates estimates;
  const Work one = kernel(1, 100, 2048);
  const Work two = kernel(2, 1, 32);
  const std::uint64_t keys[] = {LaunchDurations::key_of(one), LaunchDurations::key_of(two)};
  estimates.learn({{keys[0], keys[1], keys[0], keys[1]}, 20'000}, 60'000);
  EXPECT_EQ(estimates.of(one, kGpu, kSpacingNs), 10'000U);
  EXPECT_EQ(estimates.of(two, kGpu, kSpacingNs), 10'000U);
  EXPECT_EQ(estimates.of(kernel(3, 1, 32), kGpu, kSpacingNs), 25'000U);
}

}  // namespace
}  // namespace sluice::intercept
