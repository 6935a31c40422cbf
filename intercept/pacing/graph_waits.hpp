#pragma once
#include <optional>
#include <vector>

#include "intercept/pacing/graph_plan.hpp"

namespace sluice::intercept {

/// The device addresses of the words that waits inside a graph read. They are valid as long as the
/// registration of the memory. The driver refuses to launch a graph that waits on memory that is no
/// longer registered, so a graph must not outlive `context`.
struct GateWords {
  CUcontext context = nullptr;  ///< The context in which the memory is
                                ///< registered and the waits run.
  CUdeviceptr gate = 0;         ///< Open when 0.
  CUdeviceptr slack = 0;        ///< ns.
};

/// Reads the structure of a graph and of its child graphs from the driver. Nothing if the driver
/// does not answer, or if the graph has memory nodes: nodes and edges cannot be removed from such a
/// graph.
[[nodiscard]] std::optional<GraphShape> read_shape(CUgraph graph);

/// Puts waits into the program's own graph. The destructor removes them and restores each node's
/// edges in their order, because an update compares edges in order.
class GraphWaits {
 public:
  GraphWaits() = default;
  ~GraphWaits() { take_out(); }
  GraphWaits(const GraphWaits&) = delete;
  GraphWaits& operator=(const GraphWaits&) = delete;

  /// Puts in the whole pattern or nothing; `gates`: the words of each gate. False if the graph does
  /// not match the pattern, or if the driver refuses.
  bool put_in(const GraphShape& shape, const WaitPattern& pattern,
              const std::vector<GateWords>& gates);
  void take_out() noexcept;
  /// Call before the graph is destroyed together with its waits.
  void forget() noexcept { placed_.clear(); }
  /// Removes waits for these gates from a graph that the driver has copied from an executable: a
  /// captured launch of an executable becomes a child graph, which contains our waits.
  static void take_out_copies(const GraphShape& copy, const std::vector<CUdeviceptr>& gates);

  /// Translates a node that the driver names in an error: for one of our waits, the program's node
  /// behind it.
  [[nodiscard]] CUgraphNode program_node(CUgraphNode node) const noexcept;

 private:
  struct Placed {
    CUgraph graph = nullptr;
    CUgraphNode wait = nullptr;
    CUgraphNode node = nullptr;  ///< The program's node behind the wait.
    std::vector<CUgraphNode> before;
  };
  [[nodiscard]] bool place(const GraphShape& shape, const WaitPattern::Wait& wait,
                           const GateWords& words);
  bool put_all(const GraphShape& shape, const WaitPattern& pattern,
               const std::vector<GateWords>& gates);
  static void restore(const Placed& placed) noexcept;

  std::vector<Placed> placed_;
};

}  // namespace sluice::intercept
