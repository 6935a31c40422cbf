#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "intercept/pacing/durations.hpp"
#include "intercept/pacing/graph_estimates.hpp"
#include "intercept/pacing/graph_waits.hpp"
#include "shm/policy.hpp"

namespace sluice::intercept {

/// What a graph that is instantiated now is to get.
struct GraphPacing {
  LaunchDurations& durations;
  shm::Policy policy;
  /// Nothing: no waits, because nobody can hold this client, or there is no memory to wait on.
  std::optional<GateWords> words;
  GpuSize gpu;
  double time_scale = 1;  ///< Real time per time of the GPU.
};

/// Says, once, that a graph is preemptible only in front.
void report_ungated_graph() noexcept;

/// What is known of the executable graphs of this process. The program's own graphs hold waits only
/// while the driver copies them into an executable, so its handles, queries and changes are as
/// without us. Of each executable the book keeps which nodes have a wait, because the driver
/// updates an executable only from a graph with the same nodes.
///
/// Thread-safe. No driver call is made with the lock held.
class GraphBook {
 public:
  struct Executable {
    WaitPattern pattern;
    GateWords words;
    ColdKernels cold;
    LaunchDurations* durations = nullptr;  ///< Of the client that it was made for.
  };

  /// An instantiation: made before the call, ended after it. Graph objects are not thread-safe, so
  /// no other thread of the program may look at the graph in between.
  class Instantiation {
   public:
    Instantiation(GraphBook& book, CUgraph graph, const GraphPacing& pacing) noexcept;
    /// The graph is as the program made it from here on.
    void take_waits_out() noexcept { waits_.take_out(); }
    [[nodiscard]] bool has_waits() const noexcept { return paced_ && plan_.pattern.count() != 0; }
    /// The driver made `exec` of the graph; `refused`: only after the waits were taken out. Returns
    /// whether the executable stops for a closed gate wherever it runs for long.
    bool instantiated(CUgraphExec exec, bool refused) noexcept;

   private:
    void prepare(CUgraph graph);

    GraphBook& book_;
    const GraphPacing& pacing_;
    WaitPlan plan_;
    bool paced_ = false;  ///< The graph holds all the waits that it needs.
    ColdKernels cold_;
    GraphWaits waits_;
  };

  /// An update of an executable from `graph`: the graph holds the waits of the executable as long
  /// as this lives.
  class Update {
   public:
    Update(GraphBook& book, CUgraphExec exec, CUgraph graph) noexcept;
    [[nodiscard]] CUgraphNode program_node(CUgraphNode node) const noexcept {
      return waits_.program_node(node);
    }

   private:
    GraphWaits waits_;
  };

  /// The child graph of a node of the program's graph is set anew in an executable that holds waits
  /// inside that child graph. A copy of the child graph, with the same waits.
  ///
  /// The driver sets a child graph only from one whose nodes have the same numbers. A graph never
  /// uses the number of a destroyed node again, and a clone has the numbers of its source (measured
  /// on one H100, driver 580). So the program's own child graph must not get nodes of ours, and the
  /// copy uses up the numbers of the waits of `earlier` instantiations first.
  class ChildCopy {
   public:
    /// As many instantiations before this one are tried.
    static constexpr std::size_t kMostEarlier = 16;
    ChildCopy(GraphBook& book, CUgraphExec exec, CUgraphNode child, CUgraph graph,
              std::size_t earlier) noexcept;
    ~ChildCopy();
    ChildCopy(const ChildCopy&) = delete;
    ChildCopy& operator=(const ChildCopy&) = delete;
    /// Null if the child graph holds no waits, or cannot be copied.
    [[nodiscard]] CUgraph graph() const noexcept { return copy_; }

   private:
    CUgraph copy_ = nullptr;
    GraphWaits waits_;
  };

  /// The program has captured this graph: launches of executables in it are child graphs now, and
  /// hold no waits from here on.
  void captured(CUgraph graph) noexcept;

  /// The executable is about to be destroyed: its handle may be another's at once. Returns what was
  /// known, to be put back if the call fails.
  std::optional<Executable> take(CUgraphExec exec) noexcept;
  void put_back(CUgraphExec exec, Executable executable) noexcept;

 private:
  /// Under the lock: what the duration of the whole says of the kernels inside.
  void learn(CUgraphExec exec, Executable& executable);
  /// The pattern of the executable, or of one child graph in it.
  [[nodiscard]] std::optional<Executable> find(CUgraphExec exec, CUgraphNode child) const;

  mutable std::mutex mutex_;
  std::unordered_map<CUgraphExec, Executable> executables_;
  GraphEstimates estimates_;
};

}  // namespace sluice::intercept
