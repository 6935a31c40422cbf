#pragma once
#include <optional>
#include <vector>

#include "intercept/pacing/gate_words.hpp"
#include "intercept/pacing/graph_plan.hpp"

namespace sluice::intercept {

/// What the driver says of a graph and of the child graphs inside. Nothing if it cannot be asked,
/// or if the graph holds memory nodes: from such a graph no node and no edge can be taken out.
[[nodiscard]] std::optional<GraphShape> read_shape(CUgraph graph);

/// Puts waits into the program's own graph. The destructor takes them out again and gives each node
/// its edges back, in their order: the driver compares edges in order when it updates.
class GraphWaits {
 public:
  GraphWaits() = default;
  ~GraphWaits() { take_out(); }
  GraphWaits(const GraphWaits&) = delete;
  GraphWaits& operator=(const GraphWaits&) = delete;

  /// All of the pattern or none. False if the graph is not like the one that the pattern was made
  /// for, or the driver refuses.
  bool put_in(const GraphShape& shape, const WaitPattern& pattern, const GateWords& words);
  void take_out() noexcept;
  /// The graph ends with its waits.
  void forget() noexcept { placed_.clear(); }
  /// Takes waits for one of these gates out of a graph that the driver has copied from an
  /// executable: a launch of one that is captured becomes a child graph, with our waits.
  static void take_out_copies(const GraphShape& copy, const std::vector<CUdeviceptr>& gates);

  /// For nodes that the driver names in an error: the program's node behind one of our waits.
  [[nodiscard]] CUgraphNode program_node(CUgraphNode node) const noexcept;

 private:
  struct Placed {
    CUgraph graph = nullptr;
    CUgraphNode wait = nullptr;
    CUgraphNode node = nullptr;  ///< Of the program, behind the wait.
    std::vector<CUgraphNode> before;
  };
  [[nodiscard]] bool place(const GraphShape& shape, const WaitPattern::Wait& wait,
                           const GateWords& words);
  bool put_all(const GraphShape& shape, const WaitPattern& pattern, const GateWords& words);
  static void restore(const Placed& placed) noexcept;

  std::vector<Placed> placed_;
};

}  // namespace sluice::intercept
