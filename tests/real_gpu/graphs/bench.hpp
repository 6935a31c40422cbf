#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/real_gpu/graphs/kernels.hpp"

namespace sluice::graphs {

/// The workspace of a case: three buffers with the same content at each start, and the results. For
/// the thread of the case unless stated otherwise.
class Bench {
 public:
  /// Each buffer has kWords words. round: a case runs several times. lose: the third graph launch
  /// is left out, so that the comparison must fail.
  Bench(std::span<const CUdeviceptr, 3> buffers, unsigned round, bool lose);

  [[nodiscard]] CUdeviceptr x() const { return buffers_[0]; }
  [[nodiscard]] CUdeviceptr y() const { return buffers_[1]; }
  [[nodiscard]] CUdeviceptr z() const { return buffers_[2]; }
  [[nodiscard]] unsigned round() const { return round_; }

  /// Adds an answer of the driver to the compared results.
  void note(const std::string& what, CUresult result);
  void note(const std::string& what, std::size_t count);
  /// Waits for the device and adds the buffers to the compared results.
  void look();
  void launch(CUgraphExec exec, CUstream stream);
  void launch(CUgraphExec exec, CUstream stream, int times);

  /// A hash of all results, followed by the notes as text.
  [[nodiscard]] std::string result() const;
  [[nodiscard]] bool changed() const { return changed_; }

 private:
  [[nodiscard]] std::uint64_t hash_of_buffers() const;

  std::span<const CUdeviceptr, 3> buffers_;
  unsigned round_;
  bool lose_;
  int launches_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t hash_ = 0;
  bool changed_ = false;
  std::string notes_;
};

struct Case {
  const char* name;
  void (*run)(Bench& bench);
};

std::span<const Case> capture_cases();
std::span<const Case> conditional_cases();
std::span<const Case> launch_cases();
std::span<const Case> memory_cases();
std::span<const Case> node_cases();
std::span<const Case> stream_cases();
std::span<const Case> update_cases();

/// Step `number` of a chain of launches with short, medium and long kernels. Multipliers are odd,
/// so that no earlier effect on x is lost. Chains differ by `seed`.
[[nodiscard]] Step link(CUdeviceptr x, std::uint32_t seed, std::uint32_t number);
/// Launches a chain of `count` steps (1.1 ms for 8).
void chain(CUstream stream, CUdeviceptr x, std::uint32_t seed, std::uint32_t count = 8);
void launch(CUstream stream, const Step& step);
void launch(CUstream stream, const Combine& combine);

void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
[[nodiscard]] Graph end(CUstream stream);
/// A captured chain.
[[nodiscard]] Graph captured(CUdeviceptr x, std::uint32_t seed, std::uint32_t count = 8);
/// Also looks that the graph is the same before and after.
[[nodiscard]] Exec instantiate(CUgraph graph, unsigned long long flags = 0);
/// The nodes of a graph, and its edges with their types.
struct Content {
  std::vector<CUgraphNode> nodes;
  std::set<std::tuple<CUgraphNode, CUgraphNode, unsigned>> edges;
  friend bool operator==(const Content&, const Content&) = default;
};
[[nodiscard]] Content content_of(CUgraph graph);
/// Throws Failure if the graph has other nodes or edges.
void must_be(CUgraph graph, const Content& content);
/// Makes `to` wait for all earlier work of `from`.
void join(CUstream to, CUstream from);

/// Adds a kernel node that depends on the nodes `behind`.
CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& behind, const Step& step);
CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& behind, const Combine& combine);
[[nodiscard]] std::vector<CUgraphNode> nodes_of(CUgraph graph, CUgraphNodeType type);

}  // namespace sluice::graphs
