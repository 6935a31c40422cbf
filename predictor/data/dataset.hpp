#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "predictor/source/kernel_counts.hpp"

/// What the predictors learn from: tensor programs, and the time of each on one or several devices.
namespace sluice::predictor {

/// What a prediction needs of a profiler::Task.
struct Task {
  std::string id{};
  std::string name{};          ///< Such as "fused_conv2d_add_relu".
  std::string target{};        ///< Such as "cuda -arch=sm_90".
  std::string workload_key{};  ///< Its shapes, as text.
  double flop = 0;
  double bytes = 0;  ///< Of its inputs and outputs.
};

struct CountedKernel {
  double blocks = 1;
  double threads = 1;  ///< Of a block.
  KernelCounts counts{};
};

/// What the compiler said of a program.
struct Compiled {
  double registers = 0;    ///< Of a thread; the most of all kernels.
  double spill_bytes = 0;  ///< Likewise.
};

/// What a prediction needs of a profiler::Program.
struct Program {
  std::string id{};
  std::size_t task = 0;
  std::int64_t index = 0;                ///< In the config space of the task.
  std::size_t leaves = 0;                ///< Store statements.
  std::vector<CountedKernel> kernels{};  ///< At least one.
  std::optional<Compiled> compiled{};    ///< If it was compiled.
};

/// A program on a device.
struct Query {
  std::size_t program = 0;
  std::size_t device = 0;
  bool operator==(const Query&) const = default;
};

/// A measured program.
struct Label {
  Query query;
  double seconds = 0;
};

/// What a prediction needs of a profiler::Network.
struct Network {
  struct Call {
    std::size_t task = 0;
    std::vector<std::size_t> after{};  ///< Earlier calls whose output it reads.
  };
  std::string name{};
  std::int64_t batch = 1;
  std::vector<Call> calls{};  ///< In the order of execution.
};

struct Dataset {
  std::vector<std::string> devices{};
  std::vector<Task> tasks{};
  std::vector<Network> networks{};
  std::vector<Program> programs{};
  std::vector<Label> labels{};

  [[nodiscard]] const Task& task_of(const Query& query) const;
  /// The device with this name, in any case of letters. Throws base::UsageError with the known
  /// ones.
  [[nodiscard]] std::size_t device(const std::string& name) const;
};

/// Labels that a predictor is trained and tested with.
struct Fold {
  std::vector<Label> train{};
  std::vector<Label> tune{};  ///< Few, of the device or network that is to be predicted.
  std::vector<Label> test{};
};

/// Of more than `most` labels, the first of each program: its times on several devices say less
/// than other programs do.
void keep_one_of_each_program(std::vector<Label>& labels, std::size_t most);

[[nodiscard]] std::vector<Query> queries_of(std::span<const Label> labels);

/// The numbers of `labels` by task, in the order of tasks.
[[nodiscard]] std::map<std::size_t, std::vector<std::size_t>> by_task(
    const Dataset& data, std::span<const Query> queries);

}  // namespace sluice::predictor
