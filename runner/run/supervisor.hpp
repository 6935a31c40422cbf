#pragma once
#include <string>
#include <vector>

#include "base/install.hpp"
#include "base/mps_daemon.hpp"
#include "base/signal_fd.hpp"
#include "runner/experiment.hpp"
#include "runner/run/places.hpp"
#include "runner/run/worker_process.hpp"

namespace sluice::runner {

/// The experiment and the settings of a run.
struct RunContext {
  const base::Install& install;
  const Experiment& experiment;
  const base::Gpus& gpus;
  std::string session;
  std::string resolved_file;  ///< The experiment as the workers read it.
  std::string store;          ///< Folder of the model store.
  bool digest = false;        ///< Whether PyTorch models write hashes of their outputs.
  std::string trace;          ///< Folder for traces; empty for none.
  std::string pid_file;       ///< Where else models_pid.json is written; empty for nowhere.
  const base::MpsDaemon* mps = nullptr;  ///< Null: time-sliced.
};

/// Starts the workers of an experiment, releases them together, and watches them. The destructor
/// kills the workers that still run.
class Supervisor {
 public:
  /// Starts all workers. Throws base::RunError.
  explicit Supervisor(const RunContext& context);

  /// Waits until every worker has loaded. Returns false if a signal arrived first. Throws
  /// base::RunError if a worker ended or took longer than `limit_s`, with the worker's last lines.
  [[nodiscard]] bool load(double limit_s = 300);

  enum class Stop : std::uint8_t { kTime, kSignal, kAllDied };
  /// Releases all workers and waits `duration_s` real seconds. If a worker ends early, run()
  /// reports that on stderr at once, and the other workers go on.
  [[nodiscard]] Stop run(double duration_s);

  /// Kills every worker and waits for their ends.
  void kill_all();

  [[nodiscard]] const std::vector<WorkerProcess>& workers() const { return workers_; }
  /// The signal that stopped load() or run(), or 0.
  [[nodiscard]] int signal() const { return signal_; }
  /// Real seconds since the release; after run(), until its end.
  [[nodiscard]] double elapsed_s() const { return elapsed_s_; }

 private:
  class Progress;
  void look_at_workers(Progress& progress);
  /// Sleeps until a worker or a signal needs attention, at most `limit_ms`. True after a signal to
  /// stop.
  [[nodiscard]] bool wait(int limit_ms);

  const RunContext& context_;
  base::SignalFd signals_;
  std::vector<WorkerProcess> workers_;
  int signal_ = 0;
  double elapsed_s_ = 0;
};

}  // namespace sluice::runner
