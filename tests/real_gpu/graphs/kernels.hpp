#pragma once
#include <array>
#include <cstdint>

#include "tests/real_gpu/graphs/gpu.hpp"

namespace sluice::graphs {

/// Words of a buffer; one thread per word.
constexpr std::uint32_t kWords = 1U << 14U;

/// Functions with the same code, so that each has its own learned duration.
enum class Kernel : std::uint8_t {
  kShort,         ///< 4 us.
  kMid,           ///< 60 us.
  kLong,          ///< 400 us: longer than the spacing.
  kMixed,         ///< 20 or 700 us: one function, two durations.
  kUnseen,        ///< 30 us, never launched before the case.
  kProgrammatic,  ///< 40 us; may start before the previous kernel has ended. sm_90.
};
constexpr std::size_t kKernels = 6;

/// x = x * a + b + index of the word. Two steps do not commute, and a missing or repeated step
/// changes the result. The kernel loads, spins and then stores, so it overwrites a concurrent
/// kernel.
struct Step {
  Kernel kernel = Kernel::kShort;
  CUdeviceptr x = 0;
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  std::uint64_t ns = 0;  ///< 0: the duration of the kernel's name.
  unsigned threads = 256;
};

/// to = to * a + from.
struct Combine {
  CUdeviceptr to = 0;
  CUdeviceptr from = 0;
  std::uint32_t a = 3;
};

/// Adds one to *counter, and sets the condition to whether *counter is then below `limit`.
struct Decide {
  CUgraphConditionalHandle handle = 0;
  CUdeviceptr counter = 0;
  std::uint32_t limit = 0;
};

/// Function, shape and arguments of one launch, for every kind of launch.
class Call {
 public:
  explicit Call(const Step& step);
  explicit Call(const Combine& combine);
  explicit Call(const Decide& decide);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] CUresult launch(CUstream stream);
  [[nodiscard]] CUresult launch_cooperative(CUstream stream);
  /// With CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
  [[nodiscard]] CUresult launch_programmatic(CUstream stream);
  /// With CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: `event` is recorded when the kernel lets its
  /// dependents start.
  [[nodiscard]] CUresult launch_with_event(CUstream stream, CUevent event);
  /// Valid as long as this object lives.
  [[nodiscard]] CUDA_KERNEL_NODE_PARAMS node_params();

 private:
  [[nodiscard]] CUlaunchConfig config(CUstream stream) const;

  CUfunction function_ = nullptr;
  unsigned blocks_ = 1;
  unsigned threads_ = 1;
  std::uint64_t ns_ = 0;
  std::array<std::uint64_t, 2> wide_{};
  std::array<std::uint32_t, 3> narrow_{};
  std::array<void*, 6> arguments_{};
};

/// Loads the kernels into the current context.
void load_kernels();
/// Launches each kernel except the unseen one until its duration is known.
void warm_up(CUdeviceptr scratch);

/// The `b` of the Step of such a node, to find a node in a captured graph.
[[nodiscard]] std::uint32_t addend_of(const CUDA_KERNEL_NODE_PARAMS& params);

}  // namespace sluice::graphs
