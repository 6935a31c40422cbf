#pragma once
#include <cuda.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "profiler/measure/neighbours.hpp"
#include "profiler/measure/rule.hpp"
#include "profiler/measure/shares.hpp"
#include "profiler/packs/pack.hpp"

namespace sluice::profiler {

/// A program did not end in time. Its kernel cannot be stopped, only its process.
class RunTimeout : public base::RunError {
 public:
  using base::RunError::RunError;
};

/// A run takes longer than RunTimer::kLongestRunS. Nothing is lost.
class TooSlow : public base::RunError {
 public:
  using base::RunError::RunError;
};

/// A program in the current context.
class LoadedProgram {
 public:
  /// `addresses` of the buffers must stay valid. Throws base::RunError.
  LoadedProgram(const Program& program, const std::string& cubin,
                const std::vector<CUdeviceptr>& addresses);

  void launch(CUstream stream) const;
  /// Leaves the program loaded: unloading waits for its kernels, and one of them never ends.
  void abandon() { module_.release(); }
  [[nodiscard]] std::size_t kernels() const { return launches_.size(); }
  /// The most of all kernels.
  [[nodiscard]] int registers() const { return attribute(CU_FUNC_ATTRIBUTE_NUM_REGS); }
  [[nodiscard]] int spill_bytes() const { return attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES); }

 private:
  struct Launch {
    CUfunction function = nullptr;
    Kernel kernel;
    std::vector<CUdeviceptr> arguments;
  };
  [[nodiscard]] int attribute(CUfunction_attribute which) const;

  engine::CudaModule module_;
  std::vector<Launch> launches_;
};

/// Runs of a program, one after the other.
struct Runs {
  const LoadedProgram& program;
  std::size_t count = 1;
};

/// Measures programs on a share of the GPU. The queue is stopped while the runs of a repeat are
/// queued, so that the GPU runs them without gaps, however slow the host is.
class RunTimer {
 public:
  /// The context of `share` must be current.
  RunTimer(const Share& share, Neighbours& neighbours);

  /// Runs the program once and waits for it. Must come before the other functions: at its first
  /// run the driver may load code and memory, for which it waits until the queue is empty. Throws
  /// RunTimeout, engine::ContextLost.
  void run_once(const LoadedProgram& program);
  /// Runs the program for 20 ms, so that a GPU that was idle has its full clock.
  void raise_clocks(const LoadedProgram& program);
  /// The rule of rule.hpp. Throws RunTimeout, TooSlow, engine::ContextLost.
  [[nodiscard]] MeasuredTimes measure(const LoadedProgram& program);

  static constexpr double kLongestRunS = 1;

  /// The parts of a timed repeat, for measuring two streams at once. queue() queues the runs behind
  /// a stopped queue; false: the queue runs already, because the driver or a policy cannot stop it.
  /// let_go() starts it; finish() waits for its end and returns the seconds that it took. Throw
  /// as measure().
  [[nodiscard]] bool queue(std::initializer_list<Runs> parts);
  void let_go() { __atomic_store_n(gate_.get(), turn_, __ATOMIC_RELEASE); }
  [[nodiscard]] double finish();
  /// Queues runs behind those of the last call, and waits for the latter: so the GPU always has
  /// work.
  void run_batch(const LoadedProgram& program, std::size_t runs);
  /// Waits until nobody else works, for 2 s since the last begin_patience().
  void wait_for_quiet();
  void begin_patience();

 private:
  [[nodiscard]] TimedRuns time(const LoadedProgram& program, std::size_t runs);
  void wait_for(const engine::CudaEvent& event);
  /// False if the driver cannot.
  [[nodiscard]] bool stop_queue();

  const Share& share_;
  Neighbours& neighbours_;
  engine::CudaEvent begin_;
  engine::CudaEvent end_;
  engine::Pinned<std::uint64_t> gate_;
  std::uint64_t turn_ = 0;
  std::uint64_t patience_ns_ = 0;  ///< Left for waiting until nobody else works.
};

}  // namespace sluice::profiler
