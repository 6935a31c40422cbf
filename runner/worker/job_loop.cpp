#include "runner/worker/job_loop.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <filesystem>
#include <optional>

#include "base/clock.hpp"
#include "engine/gpu_time.hpp"
#include "runner/arrivals.hpp"
#include "runner/job_log.hpp"
#include "runner/load_barrier.hpp"
#include "sluice/sluice.h"

namespace sluice::runner {
namespace {

std::vector<std::string> header(const Model& model, const WorkerOptions& options,
                                const engine::Backend& backend, int device) {
  std::string gpu = fmt::format("device: {} {}", device, options.device_name);
  if (options.cpu) {
    gpu = "device: CPU (no real GPU here: nothing is gated; JCT is real time)";
  } else if (options.simulated) {
    gpu += fmt::format(" (simulated: JCT is real time / {:g}, time stamps are real)",
                       options.time_scale);
  }
  const std::string& file =
      options.config_name.empty() ? options.experiment_file : options.config_name;
  return {gpu, "configuration: " + file,
          fmt::format("model: {} ({})", model.display_name(), backend.describe()),
          model.source.dump()};
}

/// Runs one model's jobs and writes its logs.
class JobLoop {
 public:
  JobLoop(const Model& model, const WorkerOptions& options, engine::Backend& backend, int device)
      : options_(options),
        backend_(backend),
        announce_ns_(static_cast<std::uint64_t>(model.announce_ms * 1e6)),
        marks_groups_(model.control.hooked && model.priority > 0),
        log_(model.output_file(".log"), model.priority, header(model, options, backend, device)),
        csv_(model.output_file(".csv")),
        arrivals_(model.arrival, model.sleep_s) {
    if (arrivals_.open_loop()) {
      queueing_.emplace(model.output_file(".arrivals.csv"));
      queueing_->write("arrival_ms,queued_ms\n");
    }
  }

  /// The first row of the CSV, and no line in the log. Announced like the other jobs, because the
  /// first announcement of a process starts a thread.
  void warm_up() {
    const engine::GpuTime time(options_.time_scale, base::monotonic_ns());
    write_csv(run_job(false, prepare(time, 0)));
  }

  void run(std::uint64_t start_monotonic_ns) {
    const engine::GpuTime time(options_.time_scale, start_monotonic_ns);
    time.sleep_until(0);
    for (std::uint64_t done = 0; options_.jobs == 0 || done < options_.jobs; ++done) {
      const std::uint64_t due = arrivals_.next_ns(time.now_ns());
      time.sleep_until(due);
      const std::uint64_t started = time.now_ns();
      const JobRecord record = run_job(true, prepare(time, started));
      log_.job(record);
      write_csv(record);
      if (queueing_) {
        queueing_->write(fmt::format("{:.6f},{:.6f}\n", static_cast<double>(due) / 1e6,
                                     static_cast<double>(started - due) / 1e6));
      }
    }
  }

 private:
  /// Announces the job and waits for as long as its preparation takes. Returns the announcement, or
  /// 0.
  std::uint64_t prepare(const engine::GpuTime& time, std::uint64_t now_ns) const {
    if (announce_ns_ == 0) return 0;
    const std::uint64_t real_ns = time.to_real_ns(announce_ns_);
    const std::uint64_t announced = sluice_job_announce(base::monotonic_ns() + real_ns);
    time.wait_until(now_ns + announce_ns_);
    return announced;
  }

  JobRecord run_job(bool logged, std::uint64_t announced) {
    const bool mark = logged && marks_groups_;
    JobRecord record;
    record.start_realtime_ns = base::clock_ns(CLOCK_REALTIME);
    const std::uint64_t start = base::monotonic_ns();
    if (mark) log_.group_start(base::clock_ns(CLOCK_REALTIME));
    const std::uint64_t job = sluice_job_begin(announced);
    backend_.launch_job();
    if (mark) log_.group_end(base::clock_ns(CLOCK_REALTIME));
    backend_.wait_for_job();
    sluice_job_end(job);
    const std::uint64_t end = base::monotonic_ns();
    record.end_realtime_ns = base::clock_ns(CLOCK_REALTIME);
    record.jct_ms = static_cast<double>(end - start) / 1e6 / options_.time_scale;
    backend_.after_job();
    return record;
  }

  void write_csv(const JobRecord& record) {
    const engine::Backend::Memory memory = backend_.peak_memory();
    csv_.job(record, memory.allocated_bytes, memory.reserved_bytes);
  }

  const WorkerOptions& options_;
  engine::Backend& backend_;
  std::uint64_t announce_ns_;  ///< GPU time.
  bool marks_groups_;
  JobLog log_;
  JobCsv csv_;
  Arrivals arrivals_;
  std::optional<base::LineFile> queueing_;
};

}  // namespace

void run_jobs(const Model& model, const WorkerOptions& options, engine::Backend& backend,
              int device) {
  // The runner has created the folder, unless a user started this worker. JobLog reports a failure.
  std::error_code ignored;
  std::filesystem::create_directories(model.output_file_path, ignored);
  // With the default timer slack every sleep ends 50 us late.
  prctl(PR_SET_TIMERSLACK, 1UL);
  JobLoop loop(model, options, backend, device);
  loop.warm_up();
  const std::uint64_t start = options.barrier_fd < 0
                                  ? base::monotonic_ns()
                                  : WorkerBarrier(options.barrier_fd).wait_for_start();
  loop.run(start);
}

}  // namespace sluice::runner
