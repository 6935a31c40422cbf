#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "intercept/driver/cuda_driver.hpp"
#include "intercept/pacing/durations.hpp"

/// Where the waits of a graph go. Pure: no call of the driver.
namespace sluice::intercept {

/// A graph as the plan sees it.
struct GraphShape {
  enum class Kind : std::uint8_t { kOther, kKernel, kChild, kConditional };
  struct Node {
    CUgraphNode handle = nullptr;
    Kind kind = Kind::kOther;
    /// Every edge in front is an ordinary one. A wait would cut a programmatic edge.
    bool may_wait = true;
    std::vector<std::size_t> before;    ///< What it depends on, in the order of its edges.
    Work work;                          ///< Of a kernel.
    std::uint64_t cost = 0;             ///< Of a kernel, in units of the spacing.
    std::uint64_t slack_ns = 0;         ///< Of a kernel that is to wait for so much slack, real ns.
    std::unique_ptr<GraphShape> child;  ///< Of a child graph node.
  };
  CUgraph graph = nullptr;
  /// Each behind what it depends on, in an order that does not depend on when nodes were made: the
  /// driver pairs the nodes of an update by their edges too.
  std::vector<Node> nodes;
};

/// Which nodes of a graph have a wait in front. All that is kept of an executable.
struct WaitPattern {
  struct Wait {
    std::size_t node = 0;  ///< Index in GraphShape::nodes.
    std::uint64_t slack_ns = 0;
  };
  struct Child;
  std::size_t nodes = 0;  ///< Of the graph that it was made for.
  std::vector<Wait> waits;
  std::vector<Child> children;  ///< All child graph nodes, with their patterns.

  /// Including those inside child graphs.
  [[nodiscard]] std::size_t count() const noexcept;
};
struct WaitPattern::Child {
  std::size_t node = 0;
  CUgraphNode handle = nullptr;  ///< In the graph that was instantiated.
  WaitPattern pattern;
};

struct WaitPlan {
  WaitPattern pattern;
  /// No stretch without a wait is much longer than a spacing, as far as is known.
  bool bounded = true;
};

/// Walks the graph breadth first and divides its kernels into stretches of at most `spacing` (or
/// one kernel). Every edge that leads into a kernel of a later stretch gets a wait, so after the
/// gate closes a branch ends its stretch and stops. A child graph no longer than a spacing counts
/// as one kernel: a program may set such a graph anew, and nothing has to be done about it then.
/// The first stretch gets none: the launch of a graph has a wait in front.
[[nodiscard]] WaitPlan plan_waits(const GraphShape& shape, std::uint64_t spacing);

/// Indices of the nodes, breadth first, each behind what it depends on.
[[nodiscard]] std::vector<std::size_t> breadth_first(const GraphShape& shape);

}  // namespace sluice::intercept
