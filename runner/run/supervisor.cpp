#include "runner/run/supervisor.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/terminal.hpp"
#include "runner/model_backend.hpp"
#include "runner/run/job_table.hpp"
#include "runner/run/output_folders.hpp"
#include "shm/board.hpp"
#include "shm/give.hpp"
#include "shm/memory_limit.hpp"
#include "shm/weight.hpp"

namespace sluice::runner {
namespace {

constexpr std::size_t kLastLines = 10;

/// The log's name, which is unique in an experiment; cut to the longest name of a client.
std::string client_name_of(const Model& model) {
  return model.output_file_name.substr(0, shm::kNameSize - 1);
}

/// The interposer measures real time, which passes faster than the GPU's on a simulated GPU.
shm::Target in_real_time(shm::Target target, const RunContext& context) {
  if (target.is_relative()) return target;
  const double ns = static_cast<double>(target.limit) * context.gpus.time_scale;
  target.limit = std::min(shm::Target::kMostNs, static_cast<std::uint64_t>(ns));
  return target;
}

/// The command that prepares the worker's process and becomes the worker: `sluice exec`. Empty for
/// a model on the CPU, which needs no preparation.
std::vector<std::string> exec_command(const RunContext& context, const Model& model) {
  if (runs_on_cpu(model, context.gpus)) return {};
  std::vector<std::string> args{context.install.program("sluice-exec"), "--session",
                                context.session, "--gpu", context.gpus.simulated ? "sim" : "real"};
  if (model.control.hooked) {
    args.insert(args.end(), {"--name", client_name_of(model)});
    args.insert(args.end(), {"--priority", std::to_string(model.priority), "--policy",
                             shm::to_string(model.control.policy)});
    args.insert(args.end(), {"--target", shm::to_string(in_real_time(model.target, context))});
    args.insert(args.end(), {"--memory", shm::memory_limit_text(model.memory)});
    args.insert(args.end(), {"--weight", shm::weight_text(model.weight)});
    args.insert(args.end(), {"--give", shm::give_text(model.give)});
    if (!context.trace.empty()) args.insert(args.end(), {"--trace", context.trace});
  } else {
    args.emplace_back("--no-intercept");
  }
  args.emplace_back("--");
  return args;
}

void add_trace_options(const RunContext& context, std::vector<std::string>& args) {
  args.insert(args.end(), {"--time-scale", fmt::format("{:g}", context.gpus.time_scale)});
  if (context.gpus.simulated) args.emplace_back("--simulated");
}

void add_torch_options(const RunContext& context, const Model& model,
                       std::vector<std::string>& args) {
  args.insert(args.end(), {"--store", context.store});
  if (context.gpus.simulated) args.emplace_back("--cpu");
  if (context.digest) args.insert(args.end(), {"--digest", model.output_file(".digest")});
}

/// The whole command of a worker.
std::vector<std::string> worker_command(const RunContext& context, std::size_t index) {
  const Model& model = context.experiment.models[index];
  const bool trace = model.backend == "recording";
  const auto device = static_cast<std::size_t>(context.experiment.device_id);
  std::vector<std::string> args = exec_command(context, model);
  args.insert(args.end(), {context.install.program(trace ? kRecordingWorker : kTorchWorker),
                           "--name", model.output_file_name, context.resolved_file, "--model",
                           std::to_string(index), "--config-name", context.experiment.file,
                           "--device-name", context.gpus.names.at(device)});
  if (trace) {
    add_trace_options(context, args);
  } else {
    add_torch_options(context, model, args);
  }
  return args;
}

/// Whether a program that says why it ends may have had no room for it.
bool is_full(const std::string& folder) {
  constexpr std::uintmax_t kRoom = 4096;
  std::error_code error;
  return std::filesystem::space(folder, error).available < kRoom;
}

std::string describe_death(const WorkerProcess& worker, const std::string& folder) {
  std::string text = fmt::format("{} (pid {}) {}", worker.name(), worker.pid(), worker.end());
  const auto lines = worker.last_lines(kLastLines);
  text += lines.empty() ? ", without output" : "; its last lines:";
  if (lines.empty() && is_full(folder)) text += ": the disk of " + folder + " is full";
  for (const std::string& line : lines) text += "\n    " + line;
  return text;
}

}  // namespace

/// Shows the elapsed time of a run and the jobs of each model.
class Supervisor::Progress {
 public:
  /// names, csv_files: one per model, in the same order.
  Progress(double duration_s, const std::vector<std::string>& names,
           const std::vector<std::string>& csv_files);

  /// Shows a line if one is due. Cheap.
  void update(double elapsed_s);
  void clear() { line_.clear(); }

 private:
  struct Line {
    std::string name;
    JobCounter jobs;
  };
  double duration_s_;
  std::vector<Line> models_;
  base::ProgressLine line_;
};

Supervisor::Progress::Progress(double duration_s, const std::vector<std::string>& names,
                               const std::vector<std::string>& csv_files)
    : duration_s_(duration_s) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    models_.push_back({names[i], JobCounter(csv_files[i])});
  }
}

void Supervisor::Progress::update(double elapsed_s) {
  if (!line_.due(elapsed_s)) return;
  std::string text = fmt::format("{:.0f} of {:g} s", elapsed_s, duration_s_);
  for (Line& model : models_) text += fmt::format("  {}: {} jobs", model.name, model.jobs.count());
  line_.show(elapsed_s, text);
}

Supervisor::Supervisor(const RunContext& context)
    : context_(context), signals_{SIGINT, SIGTERM, SIGHUP, SIGCHLD} {
  const auto& models = context.experiment.models;
  // Growing the vector later would move workers whose sockets are in use.
  workers_.reserve(models.size());
  const int highest =
      std::max_element(models.begin(), models.end(), [](const Model& a, const Model& b) {
        return a.priority < b.priority;
      })->priority;
  for (std::size_t i = 0; i < models.size(); ++i) {
    std::vector<std::string> environment;
    if (context.mps != nullptr) {
      environment = context.mps->environment(models[i].priority < highest);
    }
    workers_.emplace_back(models[i].output_file_name, worker_command(context, i),
                          std::move(environment), models[i].output_file(".out"));
  }
}

bool Supervisor::wait(int limit_ms) {
  std::vector<pollfd> sources{{signals_.fd(), POLLIN, 0}};
  for (const WorkerProcess& worker : workers_) {
    // Only workers that are not ready: a socket whose other end is closed is always readable.
    if (!worker.ready() && !worker.ended()) sources.push_back({worker.barrier_fd(), POLLIN, 0});
  }
  poll(sources.data(), sources.size(), std::max(0, limit_ms));
  for (int signal = signals_.next().signal; signal != 0; signal = signals_.next().signal) {
    if (signal != SIGCHLD) signal_ = signal;
  }
  return signal_ != 0;
}

bool Supervisor::load(double limit_s) {
  constexpr int kLookMs = 200;
  const std::uint64_t start = base::monotonic_ns();
  base::ProgressLine progress;
  for (;;) {
    std::string loading;
    for (WorkerProcess& worker : workers_) {
      worker.look();
      if (worker.ended())
        throw base::RunError("while loading, " +
                             describe_death(worker, run_folder(context_.experiment)));
      if (worker.ready()) continue;
      loading += (loading.empty() ? "" : ", ") + worker.name();
      if (base::seconds_since(start) < limit_s) continue;
      std::string lines;
      for (const std::string& line : worker.last_lines(kLastLines)) lines += "\n    " + line;
      throw base::RunError(fmt::format("{} (pid {}) has not loaded within {:g} s{}{}",
                                       worker.name(), worker.pid(), limit_s,
                                       lines.empty() ? "" : "; its last lines:", lines));
    }
    if (loading.empty()) return true;
    const double elapsed_s = base::seconds_since(start);
    if (progress.due(elapsed_s)) {
      progress.show(elapsed_s, fmt::format("{:.0f} s, still loading: {}", elapsed_s, loading));
    }
    if (wait(kLookMs)) return false;
  }
}

void Supervisor::look_at_workers(Progress& progress) {
  for (WorkerProcess& worker : workers_) {
    if (worker.ended()) continue;
    worker.look();
    if (!worker.ended()) continue;
    progress.clear();
    std::fprintf(stderr, "sluice run: %s\n",
                 describe_death(worker, run_folder(context_.experiment)).c_str());
  }
}

Supervisor::Stop Supervisor::run(double duration_s) {
  constexpr int kLookMs = 200;
  std::vector<std::string> names;
  std::vector<std::string> csv_files;
  for (const Model& model : context_.experiment.models) {
    names.push_back(model.output_file_name);
    csv_files.push_back(model.output_file(".csv"));
  }
  Progress progress(duration_s, names, csv_files);
  const std::uint64_t start = base::monotonic_ns();
  for (const WorkerProcess& worker : workers_) worker.release(start);
  const auto all_ended = [this] {
    return std::all_of(workers_.begin(), workers_.end(), [](const auto& w) { return w.ended(); });
  };
  Stop stop = Stop::kTime;
  for (;;) {
    elapsed_s_ = base::seconds_since(start);
    if (elapsed_s_ >= duration_s) break;
    progress.update(elapsed_s_);
    const int left_ms = static_cast<int>(std::min(1e3 * (duration_s - elapsed_s_) + 1, 1e6));
    if (wait(std::min(kLookMs, left_ms))) {
      stop = Stop::kSignal;
      break;
    }
    look_at_workers(progress);
    if (all_ended()) {
      stop = Stop::kAllDied;
      break;
    }
  }
  elapsed_s_ = base::seconds_since(start);
  return stop;
}

void Supervisor::kill_all() {
  // All at once: otherwise a worker has the GPU to itself while another one is waited for. Under
  // MPS they are only stopped at once, because a client that is killed can disturb those that run.
  const int signal = context_.mps == nullptr ? SIGKILL : SIGSTOP;
  for (const WorkerProcess& worker : workers_) {
    if (!worker.ended()) ::kill(worker.pid(), signal);
  }
  for (WorkerProcess& worker : workers_) worker.kill();
}

}  // namespace sluice::runner
