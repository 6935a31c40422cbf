#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "intercept/pacing/durations.hpp"
#include "intercept/pacing/graph_plan.hpp"
#include "intercept/pacing/graph_waits.hpp"
#include "shm/policy.hpp"

namespace sluice::intercept {

/// What determines the waits in front of the kernels of one device in a graph that is instantiated
/// now.
struct GraphPacing {
  LaunchDurations* durations;
  shm::Policy policy;
  GateWords words;  ///< Where the waits read.
  GpuSize gpu;
  double time_scale = 1;  ///< Real time divided by GPU time.
};

/// The pacing of the device of a context; null stands for the current one, which is also the answer
/// for another context of its device. Nothing: kernels there get no waits, because nobody can hold
/// them or because the memory is not registered.
using FindPacing = std::optional<GraphPacing> (*)(CUcontext context);

/// Warns once that a graph has no waits inside.
void report_ungated_graph() noexcept;

/// The executable graphs of this process. The program's own graphs contain waits only while the
/// driver copies them into an executable, so the program's handles, queries and changes work as
/// without Sluice. The book keeps the duration of each executable, and its wait pattern, because
/// the driver updates an executable only from a graph with the same nodes.
///
/// Thread-safe. No driver call is made while a lock is held, and nothing visits every executable.
class GraphBook {
 public:
  struct Executable {
    WaitPattern pattern;  ///< Empty if it has no waits.
    std::vector<GateWords> gates;
    ColdKernels cold;  ///< Until its duration is known.
    LaunchDuration* duration = nullptr;
  };

  /// Brackets an instantiation: constructed before the driver's call. Graph objects are not
  /// thread-safe, so no other thread of the program may look at the graph in between.
  class Instantiation {
   public:
    Instantiation(GraphBook& book, CUgraph graph, FindPacing find) noexcept;
    /// Call after the driver's call. From then on the graph is as the program made it.
    void take_waits_out() noexcept { waits_.take_out(); }
    [[nodiscard]] bool has_waits() const noexcept { return paced_ && plan_.pattern.count() != 0; }
    /// The driver has made `exec`; `refused`: only after the waits were removed.
    void instantiated(CUgraphExec exec, bool refused) noexcept;

   private:
    void prepare(CUgraph graph, FindPacing find);

    GraphBook& book_;
    std::vector<GateWords> gates_;
    WaitPlan plan_;
    bool held_ = false;   ///< Kernels of the graph are to have waits in front.
    bool paced_ = false;  ///< The graph contains every wait of the plan.
    ColdKernels cold_;
    GraphWaits waits_;
  };

  /// Brackets an update of an executable from `graph`. The graph
  /// contains the waits of the executable while this object lives.
  class Update {
   public:
    Update(GraphBook& book, CUgraphExec exec, CUgraph graph) noexcept;
    [[nodiscard]] CUgraphNode program_node(CUgraphNode node) const noexcept {
      return waits_.program_node(node);
    }

   private:
    GraphWaits waits_;
  };

  /// A copy of a child graph, with the same waits, for an executable that has waits inside that
  /// child graph when the program sets the child graph anew.
  ///
  /// The driver pairs the nodes of such a child graph by their numbers. A graph never reuses the
  /// number of a destroyed node, and a clone keeps the numbers of its source (measured on one H100,
  /// driver 580). So our waits go into a clone of the program's child graph, and the clone first
  /// uses up the numbers of the waits of `earlier` instantiations.
  class ChildCopy {
   public:
    /// The most earlier instantiations of the same graph that are tried.
    static constexpr std::size_t kMostEarlier = 16;
    ChildCopy(GraphBook& book, CUgraphExec exec, CUgraphNode child, CUgraph graph,
              std::size_t earlier) noexcept;
    ~ChildCopy();
    ChildCopy(const ChildCopy&) = delete;
    ChildCopy& operator=(const ChildCopy&) = delete;
    /// Null if the child graph contains no waits or cannot be cloned.
    [[nodiscard]] CUgraph graph() const noexcept { return copy_; }

   private:
    CUgraph copy_ = nullptr;
    GraphWaits waits_;
  };

  /// Call after the program has captured this graph. Captured launches of executables are child
  /// graphs now; their waits are removed.
  void captured(CUgraph graph) noexcept;

  /// The duration of an executable that is launched now; null for want of memory. The object lives
  /// as long as the process.
  [[nodiscard]] LaunchDuration* duration_of(CUgraphExec exec) noexcept;

  /// Call for an executable without waits: the one that had this handle before may have ended
  /// unseen.
  void forget(CUgraphExec exec) noexcept;
  /// Call before the executable is destroyed, because its handle may be reused at once. Returns the
  /// entry, which goes to ended(), or to put_back() if the call fails.
  std::optional<Executable> take(CUgraphExec exec) noexcept;
  void ended(const Executable& executable) noexcept;
  void put_back(CUgraphExec exec, Executable executable) noexcept;

 private:
  /// Learns the durations of unknown kernels from the duration of the executable that they are in.
  void learn(const ColdKernels& cold, const LaunchDuration& duration) noexcept;
  /// The pattern of the executable, or of one child graph in it.
  [[nodiscard]] std::optional<Executable> find(CUgraphExec exec, CUgraphNode child) const;
  void add(CUgraphExec exec, Executable executable, bool preemptible) noexcept;
  /// A duration that no executable and no sample uses. The caller holds the lock.
  [[nodiscard]] LaunchDuration& new_duration(bool preemptible);

  mutable std::mutex mutex_;  ///< Guards all members but the estimates.
  std::unordered_map<CUgraphExec, Executable> executables_;
  std::deque<LaunchDuration> durations_;  ///< Never freed, because samples refer to them.
  std::deque<LaunchDuration*> free_;      ///< Those of ended executables, the oldest first.
  std::vector<CUdeviceptr> gates_;        ///< All that waits have ever read.
  std::mutex estimating_;                 ///< Guards the estimates, also while a graph is priced.
  GraphEstimates estimates_;
};

}  // namespace sluice::intercept
