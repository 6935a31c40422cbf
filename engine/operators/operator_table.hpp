#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

/// What the operators of a PyTorch model cost, as op.csv. Knows nothing of LibTorch or CUPTI.
namespace sluice::engine {

struct KernelTimes {
  std::string name;
  double ms = 0;
  std::array<std::uint32_t, 3> grid{};
  std::array<std::uint32_t, 3> block{};
  std::uint32_t registers = 0;
  std::uint32_t shared_bytes = 0;

  [[nodiscard]] std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
};

struct OperatorTimes {
  std::size_t node = 0;  ///< The cut of the model at which its part begins; 0 for the first part.
  std::string name;      ///< Such as aten::conv2d.
  std::string inputs;    ///< Shapes of its tensors: 1x3x224x224 64x3x7x7.
  double ms = 0;         ///< On a GPU the sum of its kernels; on the CPU the time of the call.
  std::vector<KernelTimes> kernels{};
};

/// Where the operators were measured.
struct OperatorTarget {
  std::string model;
  std::size_t batch = 1;
  std::string gpu;        ///< sm_90; cpu.
  std::uint32_t sms = 0;  ///< 0 on the CPU.
};

/// Time in kernels that have fewer blocks than the GPU has SMs, and so leave some of them idle.
[[nodiscard]] double few_blocks_ms(const OperatorTimes& times, std::uint32_t sms);

/// The time of its kernels, each times the share of the SMs that have a block of it.
[[nodiscard]] double sm_ms(const OperatorTimes& times, std::uint32_t sms);

/// One line for each operator, in the order of execution. Throws base::RunError.
void write_operators(const std::string& file, const OperatorTarget& target,
                     const std::vector<OperatorTimes>& operators);

/// What `sluice split` needs of such a file.
struct NodeTimes {
  OperatorTarget target;                             ///< Without the SMs.
  std::vector<std::pair<std::size_t, double>> ms{};  ///< Of each operator: its node, its time.

  /// The time in front of `node`.
  [[nodiscard]] double before(std::size_t node) const;
};
/// Throws base::UsageError with file and line.
[[nodiscard]] NodeTimes read_operators(const std::string& file);

}  // namespace sluice::engine
