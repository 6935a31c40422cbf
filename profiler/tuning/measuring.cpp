#include "profiler/tuning/measuring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "profiler/knobs.hpp"

namespace sluice::profiler {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What both have in common: programs and features come from the server.
class ServedMeasuring : public TaskMeasuring {
 public:
  ServedMeasuring(ProgramServer& server, std::string target)
      : server_(server), target_(std::move(target)) {}

  void begin(const Task& task) override {
    task_ = task;
    space_ = std::make_unique<ProgramSpace>(task_.sketches);
  }

  [[nodiscard]] const std::string& device() const override { return details_.device; }

  std::vector<std::optional<Program>> described(
      const std::vector<std::uint64_t>& indices) override {
    return server_.apply(task_.id, indices, {"features"});
  }

  std::vector<std::vector<std::vector<float>>> features(
      const std::vector<std::uint64_t>& indices) override {
    std::vector<std::vector<std::vector<float>>> rows;
    for (auto& program : described(indices)) {
      rows.push_back(program ? std::move(program->features) : std::vector<std::vector<float>>{});
    }
    return rows;
  }

 protected:
  /// A record without a result.
  [[nodiscard]] Record record_of(std::uint64_t index) const {
    Record record{.target = target_,
                  .task_name = task_.name,
                  .index = index,
                  .entity = space_->entity(space_->choice(index)),
                  .error = MeasureError::kInstantiation,
                  .timestamp = now_s(),
                  .tvm_version = server_.tvm()};
    for (const Buffer& buffer : task_.buffers) {
      record.args.push_back({"TENSOR", buffer.shape, buffer.dtype});
    }
    record.details = details_;
    record.details->task = task_.id;
    return record;
  }

  ProgramServer& server_;
  std::string target_;
  RecordDetails details_;  ///< What all records have in common.
  Task task_;
  std::unique_ptr<ProgramSpace> space_;
};

class CpuMeasuring : public ServedMeasuring {
 public:
  CpuMeasuring(ProgramServer& server, const std::string& target, int threads)
      : ServedMeasuring(server, target), threads_(threads) {
    details_.device = fmt::format("cpu@{}", threads);
    details_.threads = threads;
  }

  std::vector<Record> measure(const Task& task,
                              const std::vector<std::uint64_t>& indices) override {
    std::vector<Record> records;
    const auto programs = server_.apply(task.id, indices, {});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      Record& record = records.emplace_back(record_of(indices[i]));
      if (programs[i]) time(*programs[i], record);
    }
    return records;
  }

 private:
  void time(const Program& program, Record& record) {
    const std::uint64_t begin = base::monotonic_ns();
    record.details->program = program.id;
    try {
      const auto times = server_.time(program.task, program.index, threads_);
      record.error = times.correct ? MeasureError::kNone : MeasureError::kWrongAnswer;
      record.seconds = times.seconds;
      const auto [least, most] = std::ranges::minmax_element(record.seconds);
      if (!record.seconds.empty()) record.details->spread = *most / *least;
    } catch (const base::RunError& error) {
      fmt::print(stderr, "sluice opbench: program {}: {}\n", program.id, error.what());
      record.error = MeasureError::kUnknown;
    }
    record.all_cost = static_cast<double>(base::monotonic_ns() - begin) / 1e9;
    record.timestamp = now_s();
  }

  int threads_;
};

class GpuMeasuring : public ServedMeasuring {
 public:
  GpuMeasuring(ProgramServer& server, const std::string& target, const MeasureOptions& options)
      : ServedMeasuring(server, target), measurement_(options) {
    if (target != "cuda -arch=" + measurement_.arch()) {
      throw base::UsageError(fmt::format("--target: '{}', but the GPU is {}: choose cuda:{}",
                                         target, measurement_.arch(), measurement_.arch()));
    }
    details_.device = measurement_.devices().front();
  }

  std::vector<Record> measure(const Task& task,
                              const std::vector<std::uint64_t>& indices) override {
    const PackHeader header{target_, server_.tvm(), "", 0};
    std::map<std::uint64_t, Record> measured;
    for (auto& program : server_.apply(task.id, indices, {"source"})) {
      if (!program) continue;
      measurement_.add(header, task, std::move(*program), {},
                       [&](const Record& record) { measured[record.index] = record; });
    }
    measurement_.finish();
    std::vector<Record> records;
    for (const std::uint64_t index : indices) {
      const auto found = measured.find(index);
      records.push_back(found == measured.end() ? record_of(index) : found->second);
    }
    return records;
  }

 private:
  Measurement measurement_;
};

}  // namespace

std::unique_ptr<TaskMeasuring> measuring_on_cpu(ProgramServer& server, const std::string& target,
                                                int threads) {
  return std::make_unique<CpuMeasuring>(server, target, threads);
}

std::unique_ptr<TaskMeasuring> measuring_on_gpu(ProgramServer& server, const std::string& target,
                                                const MeasureOptions& options) {
  return std::make_unique<GpuMeasuring>(server, target, options);
}

}  // namespace sluice::profiler
