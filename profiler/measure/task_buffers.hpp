#pragma once
#include <cuda.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "engine/recording/cuda_objects.hpp"
#include "profiler/packs/pack.hpp"

namespace sluice::profiler {

/// What a program computed: the outputs of its task, or evenly spaced parts of large ones.
struct Outputs {
  std::vector<std::vector<char>> buffers;
};

/// The first difference of outputs that are not equal up to 1e-3 of the largest number of the
/// buffer; empty if there is none. Not-a-number equals not-a-number. Other types than float32 and
/// float64 must have equal bytes.
[[nodiscard]] std::string difference(const Task& task, const Outputs& expected,
                                     const Outputs& found);

/// The outputs with which the programs of each task are compared. Programs of many tasks come in
/// turn, so those of all tasks are kept, up to a limit.
class ExpectedOutputs {
 public:
  explicit ExpectedOutputs(std::size_t most_bytes) : most_bytes_(most_bytes) {}
  /// Nothing if the task has none yet, or had to make way.
  [[nodiscard]] const Outputs* find(const std::string& task) const;
  /// Drops the oldest ones beyond the limit, except this one.
  void add(const std::string& task, Outputs outputs);

 private:
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::map<std::string, Outputs> by_task_;
  std::deque<std::string> oldest_first_;
};

/// Device memory of the buffers of one task at a time. Inputs are random numbers in [-1, 1], the
/// same for every program of a task; whole numbers, which may be indices, are 0.
class TaskBuffers {
 public:
  /// Fills the inputs if the task is another than before, and the outputs with a number that no
  /// program writes. `reference`: a folder with the inputs TASK/BUFFER.bin; empty: random ones.
  /// Throws base::RunError if the memory does not suffice.
  void prepare(const Task& task, const Program& program, const std::string& reference);

  /// By the indices of Kernel::args.
  [[nodiscard]] const std::vector<CUdeviceptr>& addresses() const { return addresses_; }
  [[nodiscard]] Outputs outputs(const Task& task) const;

 private:
  void place(const std::vector<std::size_t>& sizes);
  void fill_inputs(const Task& task, const std::string& reference);
  void fill_randomly(CUdeviceptr to, std::size_t bytes, std::size_t seed);

  std::unique_ptr<engine::CudaMemory> memory_;
  std::size_t room_ = 0;
  std::unique_ptr<engine::CudaMemory> pattern_;
  std::vector<CUdeviceptr> addresses_;
  std::string filled_for_;  ///< Id of the task.
};

/// The expected outputs in the folder of a reference. Nothing if they are not there.
[[nodiscard]] std::optional<Outputs> reference_outputs(const Task& task,
                                                       const std::string& reference);

}  // namespace sluice::profiler
