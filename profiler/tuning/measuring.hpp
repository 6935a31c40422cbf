#pragma once
#include <memory>
#include <string>
#include <vector>

#include "profiler/runs/measure_pack.hpp"
#include "profiler/tuning/tuning.hpp"
#include "profiler/workers/program_server.hpp"

namespace sluice::profiler {

/// Makes and measures the programs that a tuner chooses.
class TaskMeasuring {
 public:
  virtual ~TaskMeasuring() = default;
  /// The task of the calls that follow.
  virtual void begin(const Task& task) = 0;
  /// Programs of the task as measure() needs them; nothing where the space refuses the index.
  [[nodiscard]] virtual std::vector<std::optional<Program>> make(
      const std::vector<std::uint64_t>& indices) = 0;
  /// A record for each program, in this order. Hands over each when it is there, in any order.
  [[nodiscard]] virtual std::vector<Record> measure(const Task& task, std::vector<Program> programs,
                                                    const OnRecord& on_record) = 0;
  /// The features of programs of the task; empty where the space refuses the index.
  [[nodiscard]] virtual std::vector<std::vector<std::vector<float>>> features(
      const std::vector<std::uint64_t>& indices) = 0;
  /// Programs of the task as `sluice predict rank` reads them; nothing where the space refuses the
  /// index.
  [[nodiscard]] virtual std::vector<std::optional<Program>> described(
      const std::vector<std::uint64_t>& indices) = 0;
  /// A record of TVM's own schedule for the task; nothing if it has none for this target.
  [[nodiscard]] virtual std::optional<Record> measure_default(const Task& task) = 0;
  /// What the records call the device.
  [[nodiscard]] virtual const std::string& device() const = 0;
};

/// `target`: TVM's. The server must outlive the result.
[[nodiscard]] std::unique_ptr<TaskMeasuring> measuring_on_cpu(ProgramServer& server,
                                                              const std::string& target,
                                                              int threads);
/// options.reference: a folder that does not exist and will not when the result has gone; the
/// inputs and outputs of a task lie there. `check`: what outputs are compared with, "cpu" or
/// "first": TVM's unscheduled program on the CPU, or the first program of the task. Empty: the CPU,
/// except on the simulated GPU.
[[nodiscard]] std::unique_ptr<TaskMeasuring> measuring_on_gpu(ProgramServer& server,
                                                              const std::string& target,
                                                              const MeasureOptions& options,
                                                              const std::string& check);

}  // namespace sluice::profiler
