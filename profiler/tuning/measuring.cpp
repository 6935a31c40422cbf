#include "profiler/tuning/measuring.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "profiler/packs/knobs.hpp"
#include "profiler/runs/measure_cpu.hpp"

namespace sluice::profiler {
namespace {

namespace fs = std::filesystem;

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
    return server_.apply(task_.id, indices, {"source"});
  }

  std::vector<std::vector<std::vector<float>>> features(
      const std::vector<std::uint64_t>& indices) override {
    std::vector<std::vector<std::vector<float>>> rows;
    // Without the kernels, for which TVM compiles a program: that takes three times as long.
    for (auto& program : server_.apply(task_.id, indices, {"features"})) {
      rows.push_back(program ? std::move(program->features) : std::vector<std::vector<float>>{});
    }
    return rows;
  }

 protected:
  /// A record without a result.
  [[nodiscard]] Record record_of(const Program& program) const {
    Record record = begun_record({target_, server_.tvm(), "", 0}, task_, program);
    record.entity = space_->entity(space_->choice(program.index));
    record.details = details_;
    record.details->task = task_.id;
    record.details->program = program.id;
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

  std::vector<std::optional<Program>> make(const std::vector<std::uint64_t>& indices) override {
    return server_.apply(task_.id, indices, {});
  }

  std::vector<Record> measure(const Task&, std::vector<Program> programs,
                              const OnRecord& on_record) override {
    std::vector<Record> records;
    for (const Program& program : programs) {
      Record& record = records.emplace_back(record_of(program));
      time_on_cpu(server_, program, threads_, record);
      // A tuner does more with an uncertain time than with none.
      record.details->disturbed = false;
      on_record(record);
    }
    return records;
  }

 private:
  int threads_;
};

/// A folder for the inputs and expected outputs of a task.
class ReferenceFolder {
 public:
  explicit ReferenceFolder(fs::path path) : path_(std::move(path)) { clear(); }
  ~ReferenceFolder() { clear(); }
  ReferenceFolder(const ReferenceFolder&) = delete;
  ReferenceFolder& operator=(const ReferenceFolder&) = delete;

  [[nodiscard]] std::string of(const Task& task) const { return path_ / task.id; }
  void clear() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

 private:
  fs::path path_;
};

class GpuMeasuring : public ServedMeasuring {
 public:
  GpuMeasuring(ProgramServer& server, const std::string& target, const MeasureOptions& options,
               const std::string& check)
      : ServedMeasuring(server, target), reference_(options.reference), measurement_(options) {
    if (target != "cuda -arch=" + measurement_.arch()) {
      throw base::UsageError(fmt::format("--target: '{}', but the GPU is {}: choose cuda:{}",
                                         target, measurement_.arch(), measurement_.arch()));
    }
    details_.device = measurement_.devices().front();
    with_cpu_ = check == "cpu" || (check.empty() && details_.device != kComputesNothing);
  }

  void begin(const Task& task) override {
    reference_.clear();
    ServedMeasuring::begin(task);
    if (!with_cpu_ || server_.write_reference(task.id, reference_.of(task))) return;
    reference_.clear();  // a part of it would make right programs wrong
    fmt::print(stderr,
               "sluice opbench: {}: the CPU has no result of it: programs are compared with the "
               "first one\n",
               task.name);
  }

  std::vector<std::optional<Program>> make(const std::vector<std::uint64_t>& indices) override {
    return server_.apply(task_.id, indices, {"source"});
  }

  std::vector<Record> measure(const Task& task, std::vector<Program> programs,
                              const OnRecord& on_record) override {
    const PackHeader header{target_, server_.tvm(), "", 0};
    std::vector<Record> records(programs.size());
    for (std::size_t i = 0; i < programs.size(); ++i) {
      measurement_.add(header, task, std::move(programs[i]), {}, [&, i](const Record& record) {
        records[i] = record;
        on_record(record);
      });
    }
    measurement_.finish();
    return records;
  }

  std::optional<Record> measure_default(const Task& task) override {
    auto program = server_.default_program(task.id);
    if (!program) return std::nullopt;
    return measure(task, {std::move(*program)}, [](const Record&) {}).front();
  }

 private:
  static constexpr std::string_view kComputesNothing = "simulated";

  ReferenceFolder reference_;
  bool with_cpu_ = false;
  Measurement measurement_;
};

}  // namespace

std::unique_ptr<TaskMeasuring> measuring_on_cpu(ProgramServer& server, const std::string& target,
                                                int threads) {
  return std::make_unique<CpuMeasuring>(server, target, threads);
}

std::unique_ptr<TaskMeasuring> measuring_on_gpu(ProgramServer& server, const std::string& target,
                                                const MeasureOptions& options,
                                                const std::string& check) {
  return std::make_unique<GpuMeasuring>(server, target, options, check);
}

}  // namespace sluice::profiler
