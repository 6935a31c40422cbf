#include "intercept/pacing/graph_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace sluice::intercept {
namespace {

/// The state behind a node: the stretch of the last wait that every path to the node has passed,
/// and the cost of the longest path since its last wait.
struct Reached {
  std::uint64_t stretch = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t since_wait = 0;

  void merge(const Reached& other) noexcept {
    stretch = std::min(stretch, other.stretch);
    since_wait = std::max(since_wait, other.since_wait);
  }
};

/// The pattern without any waits.
WaitPattern pattern_of(const GraphShape& shape) {
  WaitPattern pattern;
  pattern.nodes = shape.nodes.size();
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) {
    const GraphShape::Node& node = shape.nodes[i];
    if (node.child == nullptr) continue;
    pattern.children.push_back({i, node.handle, pattern_of(*node.child)});
  }
  return pattern;
}

/// Plans the waits for one gate.
class Planner {
 public:
  Planner(std::uint64_t spacing, std::size_t gate) noexcept : spacing_(spacing), gate_(gate) {}

  Reached walk(const GraphShape& shape, const Reached& front, WaitPattern& pattern) {
    std::vector<WaitPattern*> inside(shape.nodes.size());
    for (WaitPattern::Child& child : pattern.children) inside[child.node] = &child.pattern;
    std::vector<Reached> reached(shape.nodes.size());
    std::vector<bool> is_last(shape.nodes.size(), true);
    for (const std::size_t index : breadth_first(shape)) {
      const GraphShape::Node& node = shape.nodes[index];
      Reached& here = reached[index];
      for (const std::size_t before : node.before) {
        here.merge(reached[before]);
        is_last[before] = false;
      }
      if (node.before.empty()) here = front;
      if (node.child == nullptr) {
        visit(node, index, here, pattern);
      } else {
        visit_child(node, index, here, pattern, *inside[index]);
      }
    }
    Reached end;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      if (is_last[i]) end.merge(reached[i]);
    }
    return reached.empty() ? front : end;
  }

  [[nodiscard]] bool bounded() const noexcept { return bounded_; }

 private:
  void visit(const GraphShape::Node& node, std::size_t index, Reached& here, WaitPattern& pattern) {
    if (node.gate != gate_) return;
    if (node.kind == GraphShape::Kind::kKernel) {
      visit_run(node, node.cost, index, here, pattern);
    } else if (node.kind == GraphShape::Kind::kConditional) {
      // Its bodies hold no waits, and may take any time.
      begin_stretch();
      put_wait(node, index, here, pattern);
      begin_stretch();
      bounded_ = false;
    }
  }

  void visit_child(const GraphShape::Node& node, std::size_t index, Reached& here,
                   WaitPattern& pattern, WaitPattern& inside) {
    const std::optional<std::uint64_t> cost = cost_of(*node.child);
    if (!cost || *cost > spacing_) {
      here = walk(*node.child, here, inside);
    } else if (*cost != 0) {
      visit_run(node, *cost, index, here, pattern);
    }
  }

  /// A kernel, or a child graph no longer than a spacing: what shares one wait.
  void visit_run(const GraphShape::Node& node, std::uint64_t cost, std::size_t index, Reached& here,
                 WaitPattern& pattern) {
    if (spent_ != 0 && spent_ + cost > spacing_) begin_stretch();
    spent_ += cost;
    put_wait(node, index, here, pattern);
    here.since_wait += cost;
    // Two spacings: a kernel that may not wait leaves it to the next one.
    bounded_ = bounded_ && here.since_wait <= std::max(2 * spacing_, cost);
  }

  /// Of all kernels; nothing where a conditional node, a kernel that waits for slack, or one of
  /// another gate is inside.
  [[nodiscard]] std::optional<std::uint64_t> cost_of(const GraphShape& shape) const {
    std::uint64_t sum = 0;
    for (const GraphShape::Node& node : shape.nodes) {
      if (node.kind == GraphShape::Kind::kConditional || node.slack_ns != 0) return std::nullopt;
      if (node.kind == GraphShape::Kind::kKernel && node.gate != gate_) return std::nullopt;
      const auto inside = node.child == nullptr ? std::optional(node.cost) : cost_of(*node.child);
      if (!inside) return std::nullopt;
      sum += *inside;
    }
    return sum;
  }

  void begin_stretch() noexcept {
    ++stretch_;
    spent_ = 0;
  }

  void put_wait(const GraphShape::Node& node, std::size_t index, Reached& here,
                WaitPattern& pattern) {
    if (!node.may_wait || (here.stretch == stretch_ && node.slack_ns == 0)) return;
    pattern.waits.push_back({index, node.slack_ns, gate_});
    here = {stretch_, 0};
  }

  std::uint64_t spacing_;
  std::size_t gate_;
  std::uint64_t spent_ = 0;
  std::uint64_t stretch_ = 0;
  bool bounded_ = true;
};

}  // namespace

std::size_t WaitPattern::count() const noexcept {
  return std::accumulate(
      children.begin(), children.end(), waits.size(),
      [](std::size_t sum, const Child& child) { return sum + child.pattern.count(); });
}

WaitPlan plan_waits(const GraphShape& shape, const std::vector<std::uint64_t>& spacings) {
  WaitPlan plan{pattern_of(shape)};
  for (std::size_t gate = 0; gate < spacings.size(); ++gate) {
    Planner planner(spacings[gate], gate);
    planner.walk(shape, {0, 0}, plan.pattern);
    plan.bounded = plan.bounded && planner.bounded();
  }
  return plan;
}

std::vector<std::size_t> breadth_first(const GraphShape& shape) {
  std::vector<std::vector<std::size_t>> behind(shape.nodes.size());
  std::vector<std::size_t> missing(shape.nodes.size());
  std::vector<std::size_t> order;
  order.reserve(shape.nodes.size());
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) {
    missing[i] = shape.nodes[i].before.size();
    if (missing[i] == 0) order.push_back(i);
    for (const std::size_t before : shape.nodes[i].before) behind[before].push_back(i);
  }
  for (std::size_t done = 0; done < order.size(); ++done) {
    for (const std::size_t next : behind[order[done]]) {
      if (--missing[next] == 0) order.push_back(next);
    }
  }
  return order;
}

std::uint64_t GraphEstimates::of(const Work& work, const GpuSize& gpu,
                                 std::uint64_t spacing_ns) const {
  const auto learned = ns_.find(LaunchDurations::key_of(work));
  if (learned != ns_.end() && epoch_ == code_epoch()) return learned->second;
  const auto product = [](const std::array<unsigned, 3>& size) {
    return static_cast<double>(size[0]) * size[1] * size[2];
  };
  const double share =
      std::max(product(work.block) / std::max(gpu.threads, 1U),
               static_cast<double>(work.shared_bytes) / std::max(gpu.shared_bytes, 1U));
  const double fills = product(work.grid) * share / std::max(gpu.multiprocessors, 1U);
  const double least = static_cast<double>(spacing_ns) / kMostBetweenWaits;
  const double most = static_cast<double>(spacing_ns) + 1;
  return static_cast<std::uint64_t>(
      std::clamp(fills * static_cast<double>(kFullGpuNs), least, most));
}

void GraphEstimates::learn(const ColdKernels& cold, std::uint64_t total_ns) {
  if (cold.kernels.empty() || cold.epoch != code_epoch()) return;
  if (std::exchange(epoch_, cold.epoch) != cold.epoch) ns_.clear();
  const std::uint64_t rest = total_ns - std::min(total_ns, cold.known_ns);
  const std::uint64_t each = rest / cold.kernels.size();
  for (const std::uint64_t kernel : cold.kernels) {
    if (ns_.size() < kMost || ns_.contains(kernel)) ns_[kernel] = each;
  }
}

}  // namespace sluice::intercept
