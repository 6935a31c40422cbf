#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "intercept/driver/entries.hpp"
#include "intercept/pacing/durations.hpp"

/// Decides where the waits of a graph go. Makes no driver call.
namespace sluice::intercept {

/// The structure of a graph, as the plan needs it.
struct GraphShape {
  /// Nobody can hold what runs there.
  static constexpr std::size_t kNoGate = ~std::size_t{0};
  enum class Kind : std::uint8_t { kOther, kKernel, kChild, kConditional };
  struct Node {
    CUgraphNode handle = nullptr;
    Kind kind = Kind::kOther;
    /// Whether every incoming edge is an ordinary one. A wait would cut a programmatic edge.
    bool may_wait = true;
    std::vector<std::size_t> before;  ///< Its dependencies, in the order of the edges.
    Work work;                        ///< Of a kernel.
    CUcontext context = nullptr;      ///< Of a kernel; null if the driver does not tell.
    /// The gate of the device on which a kernel runs, as an index. A wait in front reads it.
    std::size_t gate = 0;
    std::uint64_t cost = 0;             ///< Of a kernel, in the unit of the spacing.
    std::uint64_t slack_ns = 0;         ///< Of a kernel that waits for slack; real ns.
    std::unique_ptr<GraphShape> child;  ///< Of a child graph node.
  };
  CUgraph graph = nullptr;
  /// Every node comes after its dependencies. The order depends on the edges only, not on the order
  /// in which the nodes were made, because the driver pairs the nodes of an update by their edges
  /// too.
  std::vector<Node> nodes;
};

/// Which nodes of a graph have a wait in front.
struct WaitPattern {
  struct Wait {
    std::size_t node = 0;  ///< Index in GraphShape::nodes.
    std::uint64_t slack_ns = 0;
    std::size_t gate = 0;  ///< GraphShape::Node::gate.
  };
  struct Child;
  std::size_t nodes = 0;  ///< Number of nodes of the graph that it was made for.
  std::vector<Wait> waits;
  std::vector<Child> children;  ///< All child graph nodes and their patterns.

  /// The number of waits, including those inside child graphs.
  [[nodiscard]] std::size_t count() const noexcept;
};
struct WaitPattern::Child {
  std::size_t node = 0;
  CUgraphNode handle = nullptr;  ///< The node in the graph that was instantiated.
  WaitPattern pattern;
};

struct WaitPlan {
  WaitPattern pattern;
  /// Whether no stretch without a wait is much longer than a spacing, by the durations that are
  /// known.
  bool bounded = true;
};

/// Walks the graph breadth first and divides its kernels into stretches of at most `spacing` (or
/// one kernel). Every edge that leads into a kernel of a later stretch gets a wait, so when the
/// gate closes, each branch ends its stretch and stops. A child graph no longer than a spacing
/// counts as one kernel, so a program can set it anew without any work of ours. The first stretch
/// gets no wait, because the launch of the graph has one in front.
///
/// Each gate has a spacing of its own, and its kernels are divided as if there were no others.
[[nodiscard]] WaitPlan plan_waits(const GraphShape& shape,
                                  const std::vector<std::uint64_t>& spacings);

/// Indices of the nodes, breadth first, every node after its dependencies.
[[nodiscard]] std::vector<std::size_t> breadth_first(const GraphShape& shape);

/// How much work a GPU can hold at one time.
struct GpuSize {
  unsigned multiprocessors = 1;
  unsigned threads = 2048;         ///< Of a multiprocessor.
  unsigned shared_bytes = 65'536;  ///< Of a multiprocessor.
};

/// The kernels of an executable whose durations were unknown when it was instantiated. When the
/// duration of the whole graph is known, these kernels are taken to share what the other kernels
/// leave of it.
struct ColdKernels {
  std::vector<std::uint64_t> kernels;  ///< Keys of LaunchDurations, with repetitions.
  std::uint64_t known_ns = 0;          ///< The time of the graph's other kernels and of its waits.
  std::uint32_t epoch = code_epoch();  ///< When the keys were made.
};

/// Estimated durations of kernels that were only launched inside graphs, where no kernel can be
/// measured by itself. Forgets all when code is unloaded. Not thread-safe.
class GraphEstimates {
 public:
  /// A kernel counts as at least an eighth of the spacing, so that at most eight kernels of unknown
  /// duration run between two waits.
  static constexpr std::uint64_t kMostBetweenWaits = 8;
  /// The estimate for a kernel that fills the GPU once. With this value, 10 recorded models of 126
  /// to 955 kernels would get waits that take 5 % of their time (median). A wait for each kernel
  /// would take 2 to 100 %.
  static constexpr std::uint64_t kFullGpuNs = 100'000;
  /// The GPU time of a wait in a graph.
  static constexpr std::uint64_t kWaitNs = 2'600;

  /// ns: learned from measured graphs if possible, otherwise estimated from how much of the GPU the
  /// kernel fills.
  [[nodiscard]] std::uint64_t of(const Work& work, const GpuSize& gpu,
                                 std::uint64_t spacing_ns) const;
  /// For a graph with these kernels that took `total_ns`.
  void learn(const ColdKernels& cold, std::uint64_t total_ns);

 private:
  static constexpr std::size_t kMost = 16'384;
  std::unordered_map<std::uint64_t, std::uint64_t> ns_;  ///< By key.
  std::uint32_t epoch_ = 0;                              ///< code_epoch() of all in ns_.
};

}  // namespace sluice::intercept
