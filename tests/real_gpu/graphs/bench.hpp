#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/real_gpu/graphs/kernels.hpp"

namespace sluice::graphs {

/// What a case works on: three buffers that begin as they began for the last case, and what it
/// found out. Everything here is for the thread of the case unless it says otherwise.
class Bench {
 public:
  /// Buffers are of kWords words. round: a case is run several times. lose: its third graph launch
  /// is left out, so that the comparison can be seen to fail.
  Bench(std::span<const CUdeviceptr, 3> buffers, unsigned round, bool lose);

  [[nodiscard]] CUdeviceptr x() const { return buffers_[0]; }
  [[nodiscard]] CUdeviceptr y() const { return buffers_[1]; }
  [[nodiscard]] CUdeviceptr z() const { return buffers_[2]; }
  [[nodiscard]] unsigned round() const { return round_; }

  /// Adds an answer of the driver to what is compared.
  void note(const std::string& what, CUresult result);
  void note(const std::string& what, std::size_t count);
  /// Waits for the device and adds the buffers to what is compared.
  void look();
  void launch(CUgraphExec exec, CUstream stream);
  void launch(CUgraphExec exec, CUstream stream, int times);

  /// Of everything looked at; notes are text behind it.
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

/// The `number`th of a chain of launches: short, middling, long ones; multipliers are odd, so that
/// nothing that was done to x is lost again. `seed` tells chains apart.
[[nodiscard]] Step link(CUdeviceptr x, std::uint32_t seed, std::uint32_t number);
/// Launches `count` of them (1.1 ms for 8).
void chain(CUstream stream, CUdeviceptr x, std::uint32_t seed, std::uint32_t count = 8);
void launch(CUstream stream, const Step& step);
void launch(CUstream stream, const Combine& combine);

void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
[[nodiscard]] Graph end(CUstream stream);
/// How many were found in what end() returned: the cases put none there. Thread-safe.
[[nodiscard]] std::size_t wait_nodes();
/// A chain, captured.
[[nodiscard]] Graph captured(CUdeviceptr x, std::uint32_t seed, std::uint32_t count = 8);
[[nodiscard]] Exec instantiate(CUgraph graph, unsigned long long flags = 0);
/// `to` waits for what `from` has been given.
void join(CUstream to, CUstream from);

/// Adds a kernel behind the nodes named.
CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& behind, const Step& step);
CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& behind, const Combine& combine);
[[nodiscard]] std::vector<CUgraphNode> nodes_of(CUgraph graph, CUgraphNodeType type);

}  // namespace sluice::graphs
