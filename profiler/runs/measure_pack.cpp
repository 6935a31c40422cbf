#include "profiler/runs/measure_pack.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "profiler/packs/selection.hpp"
#include "profiler/workers/gpu_workers.hpp"

namespace sluice::profiler {

using nlohmann::json;

namespace {

constexpr double kMeasureLimitS = 120;  ///< The child has limits of its own; this is the last one.
constexpr std::size_t kReadyPerGpu = 8;

}  // namespace

void MeasureCounts::add(const Record& record) {
  if (record.error != MeasureError::kNone) {
    ++errors[record.error];
  } else if (record.disturbed()) {
    ++disturbed;
  } else {
    ++good;
  }
}

Record begun_record(const PackHeader& header, const Task& task, const Program& program) {
  Record record{.target = header.target,
                .task_name = task.name,
                .index = program.index,
                .entity = program.entity,
                .timestamp = base::unix_seconds(),
                .tvm_version = header.tvm};
  for (const Buffer& buffer : task.buffers) {
    record.args.push_back({"TENSOR", buffer.shape, buffer.dtype});
  }
  record.details = RecordDetails{.task = task.id, .program = program.id};
  return record;
}

struct Measurement::Job {
  PackHeader header;
  const Task* task = nullptr;
  Program program;
  std::vector<ShareName> shares{};
  OnRecord done{};
  std::uint64_t begin_ns = base::monotonic_ns();

  /// A record without a result.
  [[nodiscard]] Record record(const ShareName& share) const {
    Record record = begun_record(header, *task, program);
    record.all_cost = base::seconds_since(begin_ns);
    record.details->device = share.device;
    record.details->sms = share.sms;
    return record;
  }
};

Measurement::Measurement(MeasureOptions options)
    : options_(std::move(options)),
      compilers_(compiler_commands(options_.jobs), options_.compile_limit_s),
      gpus_(gpu_commands(options_.devices), kMeasureLimitS) {
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) greet(gpu);
}

std::vector<std::string> Measurement::devices() const {
  std::vector<std::string> names;
  for (const ShareName& share : shares_) names.push_back(share.device);
  return names;
}

void Measurement::greet(std::size_t gpu) {
  const auto& wanted = options_.sms;
  const json request{{"do", "hello"}, {"sms", wanted.empty() ? std::vector<unsigned>{0} : wanted}};
  const WorkerAnswer answer = ask(gpus_, gpu, request.dump());
  const std::string where = fmt::format("GPU {}: ", options_.devices[gpu]);
  if (answer.how != WorkerAnswer::How::kAnswered) {
    throw base::RunError(where + "sluice-measure cannot use it; see the line above");
  }
  const json hello = json::parse(answer.text);
  if (!hello.at("ok")) throw base::RunError(where + hello.at("error").get<std::string>());
  std::vector<ShareName> shares{};
  for (std::size_t i = 0; i < hello.at("shares").size(); ++i) {
    const json& share = hello["shares"][i];
    const unsigned sms = wanted.empty() ? 0 : wanted[i];
    if (share.contains("error")) {
      const std::string line =
          fmt::format("{}no share of {} SMs: {}", where, sms, share["error"].get<std::string>());
      if (said_.insert(line).second) fmt::print(stderr, "sluice opbench: {}\n", line);
      continue;
    }
    const std::string device = hello.at("device");
    shares.push_back({sms, share.at("sms"),
                      share.at("whole").get<bool>()
                          ? device
                          : fmt::format("{}@{}", device, share["sms"].get<int>())});
  }
  if (shares.empty()) throw base::RunError(where + "none of the shares can be had");
  if (!shares_.empty() && (arch_ != hello.at("arch").get_ref<const std::string&>() ||
                           shares_[0].device != shares[0].device)) {
    throw base::RunError(where + "another type than the first GPU");
  }
  arch_ = hello.at("arch");
  shares_ = shares;
}

void Measurement::add(const PackHeader& header, const Task& task, Program program,
                      const std::set<std::string>& known, OnRecord done) {
  auto job = std::make_shared<Job>(
      Job{.header = header, .task = &task, .program = std::move(program), .done = std::move(done)});
  const bool has_binary = keep_what_measures(job->program, arch_);
  for (const ShareName& share : shares_) {
    if (!known.contains(share.device)) job->shares.push_back(share);
  }
  if (job->shares.empty()) return;
  if (has_binary) {
    while (ready_.size() >= kReadyPerGpu * gpus_.size()) work();
    ready_.push_back(std::move(job));
  } else {
    while (compilers_.idle() == compilers_.size() || ready_.size() >= kReadyPerGpu * gpus_.size()) {
      work();
    }
    compile(job);
  }
  measure_ready();
}

void Measurement::finish() {
  while (!ready_.empty() || compilers_.busy() > 0 || gpus_.busy() > 0) work();
}

void Measurement::work() {
  measure_ready();
  (void)wait_for_answer({&compilers_, &gpus_}, 1);
  measure_ready();
}

void Measurement::compile(const std::shared_ptr<Job>& job) {
  job->begin_ns = base::monotonic_ns();
  compilers_.submit(compilers_.idle(), compile_request(job->program, arch_),
                    [this, job](const WorkerAnswer& answer) { compiled(job, answer); });
}

void Measurement::compiled(const std::shared_ptr<Job>& job, const WorkerAnswer& answer) {
  if (answer.how == WorkerAnswer::How::kTimeout) return fail(*job, MeasureError::kCompileTimeout);
  if (answer.how == WorkerAnswer::How::kDied) return fail(*job, MeasureError::kCompileDevice);
  const std::string why = take_binary(job->program, arch_, answer.text);
  if (!why.empty()) {
    fmt::print(stderr, "sluice opbench: program {}: {}\n", job->program.id, why);
    return fail(*job, MeasureError::kCompileDevice);
  }
  ready_.push_back(job);
}

void Measurement::measure_ready() {
  while (!ready_.empty() && gpus_.idle() < gpus_.size()) {
    const std::size_t gpu = gpus_.idle();
    const auto job = ready_.front();
    ready_.pop_front();
    Task task = *job->task;
    task.sketches.clear();
    std::vector<unsigned> sms;
    for (const ShareName& share : job->shares) sms.push_back(share.wanted);
    const json request{{"do", "measure"},
                       {"task", to_json(task)},
                       {"program", to_json(job->program)},
                       {"arch", arch_},
                       {"sms", sms},
                       {"reference", options_.reference}};
    gpus_.submit(gpu, request.dump(),
                 [this, gpu, job](const WorkerAnswer& answer) { measured(gpu, job, answer); });
  }
}

void Measurement::measured(std::size_t gpu, const std::shared_ptr<Job>& job,
                           const WorkerAnswer& answer) {
  using How = WorkerAnswer::How;
  const json result = answer.how == How::kAnswered ? json::parse(answer.text) : json{};
  if (answer.how == How::kTimeout) {
    fail(*job, MeasureError::kRunTimeout);
  } else if (answer.how == How::kDied) {
    fmt::print(stderr, "sluice opbench: program {}: sluice-measure {}\n", job->program.id,
               answer.text);
    fail(*job, MeasureError::kRuntimeDevice);
  } else if (result.at("ok")) {
    record_times(*job, result);
  } else {
    fmt::print(stderr, "sluice opbench: program {}: {}\n", job->program.id,
               result.at("error").get<std::string>());
    fail(*job, result.at("code").get<MeasureError>());
  }
  if (answer.how == How::kAnswered && !result.at("lost")) return;
  // A new process, whose hello shows whether the GPU can still be used.
  if (answer.how == How::kAnswered) gpus_.restart(gpu);
  greet(gpu);
}

void Measurement::record_times(const Job& job, const json& answer) {
  for (std::size_t i = 0; i < job.shares.size(); ++i) {
    const json& share = answer.at("shares").at(i);
    Record record = job.record(job.shares[i]);
    record.details->registers = answer.at("registers");
    record.details->spill_bytes = answer.at("spill_bytes");
    if (share.contains("error")) {
      record.error = share.at("code").get<MeasureError>();
    } else {
      record.seconds = share.at("seconds").get<std::vector<double>>();
      record.details->spread = share.at("spread");
      record.details->disturbed = share.at("disturbed");
    }
    job.done(record);
  }
}

void Measurement::fail(const Job& job, MeasureError error) const {
  for (const ShareName& share : job.shares) {
    Record record = job.record(share);
    record.error = error;
    job.done(record);
  }
}

std::map<std::string, std::set<std::string>> known_programs(const std::string& file) {
  const Records found = read_records(file);
  if (found.torn) fmt::print(stderr, "sluice opbench: {}: the last line is torn: dropped\n", file);
  std::map<std::string, std::set<std::string>> known;
  for (const Record& record : found.records) {
    if (record.details && !record.disturbed()) {
      known[record.details->program].insert(record.details->device);
    }
  }
  return known;
}

namespace {

bool has_reference(const std::string& folder, const Task& task) {
  for (std::size_t i = 0; i < task.buffers.size(); ++i) {
    const auto file = std::filesystem::path(folder) / task.id / fmt::format("{}.bin", i);
    if (task.buffers[i].output && !std::filesystem::exists(file)) return false;
  }
  return true;
}

/// The headers of all packs. A wrong file must not wait for the GPU, nor be found behind hours of
/// measuring.
std::map<std::string, PackHeader> checked_headers(const std::vector<std::string>& packs) {
  std::map<std::string, PackHeader> headers;
  for (const std::string& file : packs) {
    (void)arch_of(file, headers[file] = read_header(file));
  }
  return headers;
}

class GpuMeasurement {
 public:
  explicit GpuMeasurement(const MeasureOptions& options)
      : options_(options),
        known_(known_programs(options.out)),
        headers_(checked_headers(options.packs)),
        measurement_(options) {
    for (const std::string& file : options.packs) {
      require_arch(file, headers_.at(file), measurement_.arch());
    }
    out_.emplace(options.out);
  }

  void measure(const std::string& file) {
    PackReader pack(file);
    auto& tasks = tasks_.emplace_back();
    while (auto entry = pack.next()) {
      if (auto* network = std::get_if<Network>(&*entry)) counts_.networks.push_back(*network);
      if (auto* task = std::get_if<Task>(&*entry)) tasks[task->id] = std::move(*task);
      auto* const program = std::get_if<Program>(&*entry);
      if (program == nullptr) continue;
      const auto task = tasks.find(program->task);
      if (task == tasks.end()) {
        throw base::UsageError(
            fmt::format("{}: program {} before its task {}", file, program->id, program->task));
      }
      add(headers_.at(file), task->second, std::move(*program));
    }
    if (pack.torn()) report_torn(file);
  }

  MeasureCounts finish() {
    measurement_.finish();
    counts_.without_reference = without_reference_.size();
    counts_.bare = selection_.bare();
    return std::move(counts_);
  }

 private:
  void add(const PackHeader& header, const Task& task, Program program) {
    const bool bare = program.source.empty() && !program.cubins.contains(measurement_.arch());
    if (!selection_.take(program, bare)) return;
    if (options_.limit_s > 0 && base::seconds_since(begin_ns_) > options_.limit_s) {
      ++counts_.left;
      return;
    }
    if (!options_.reference.empty() && !has_reference(options_.reference, task)) {
      without_reference_.insert(task.id);
    }
    const auto& devices = known_[program.id];
    counts_.known += devices.size();
    measurement_.add(header, task, std::move(program), devices, [this](const Record& record) {
      out_->add(record);
      counts_.add(record);
    });
  }

  const MeasureOptions& options_;
  std::uint64_t begin_ns_ = base::monotonic_ns();
  std::map<std::string, std::set<std::string>> known_;
  std::map<std::string, PackHeader> headers_;
  Measurement measurement_;
  std::optional<RecordFile> out_;  ///< Made when nothing is wrong with the packs and the GPUs.
  Selection selection_{options_.per_task, options_.only};
  std::set<std::string> without_reference_;
  std::deque<std::map<std::string, Task>> tasks_;  ///< Queued programs point to their tasks.
  MeasureCounts counts_;
};

}  // namespace

MeasureCounts measure_packs(const MeasureOptions& options) {
  GpuMeasurement measurement(options);
  for (const std::string& file : options.packs) measurement.measure(file);
  return measurement.finish();
}

}  // namespace sluice::profiler
