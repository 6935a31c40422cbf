#include "profiler/tuning/measuring.hpp"

#include <fmt/format.h>

#include <map>

#include "base/error.hpp"
#include "profiler/knobs.hpp"
#include "profiler/measure_cpu.hpp"

namespace sluice::profiler {
namespace {

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
    Record record = begun_record({target_, server_.tvm(), "", 0}, task_,
                                 {.id = "", .task = task_.id, .index = index});
    record.entity = space_->entity(space_->choice(index));
    record.error = MeasureError::kInstantiation;
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

  std::optional<Record> measure_default(const Task&) override { return std::nullopt; }

  std::vector<Record> measure(const Task& task, const std::vector<std::uint64_t>& indices,
                              std::size_t most) override {
    std::vector<Record> records;
    const auto programs = server_.apply(task.id, indices, {});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (programs[i] && most-- == 0) break;
      Record& record = records.emplace_back(record_of(indices[i]));
      if (!programs[i]) continue;
      record.details->program = programs[i]->id;
      time_on_cpu(server_, *programs[i], threads_, record);
      // A tuner does more with an uncertain time than with none.
      record.details->disturbed = false;
    }
    return records;
  }

 private:
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

  std::vector<Record> measure(const Task& task, const std::vector<std::uint64_t>& indices,
                              std::size_t most) override {
    auto programs = server_.apply(task.id, indices, {"source"});
    std::size_t end = 0;  // behind the last program that is measured
    for (; end < programs.size(); ++end) {
      if (programs[end] && most-- == 0) break;
    }
    programs.resize(end);
    const auto measured = measured_of(task, std::move(programs));
    std::vector<Record> records;
    for (std::size_t i = 0; i < end; ++i) {
      const auto found = measured.find(indices[i]);
      records.push_back(found == measured.end() ? record_of(indices[i]) : found->second);
    }
    return records;
  }

  std::optional<Record> measure_default(const Task& task) override {
    const auto measured = measured_of(task, {server_.default_program(task.id)});
    if (measured.empty()) return std::nullopt;
    return measured.begin()->second;
  }

 private:
  /// By index.
  std::map<std::uint64_t, Record> measured_of(const Task& task,
                                              std::vector<std::optional<Program>> programs) {
    const PackHeader header{target_, server_.tvm(), "", 0};
    std::map<std::uint64_t, Record> measured;
    for (auto& program : programs) {
      if (!program) continue;
      measurement_.add(header, task, std::move(*program), {},
                       [&](const Record& record) { measured[record.index] = record; });
    }
    measurement_.finish();
    return measured;
  }

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
