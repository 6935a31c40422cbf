#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/workload/client.hpp"

namespace sluice::server::workload {

/// What a run saw of one training job name.
struct TrainSummary {
  std::string model;
  std::vector<double> seconds;  ///< Of each job that ended well.
  std::string error;            ///< The first failure; empty: none.
  std::uint64_t stopped = 0;    ///< Jobs that we have stopped.
};

/// The part of the published report about training.
[[nodiscard]] std::string train_report(const TrainSummary& summary);

/// Training jobs of a server: a thread for each name sends one job after the other. The server runs
/// one job at a time.
class TrainJobs {
 public:
  TrainJobs() = default;
  TrainJobs(const TrainJobs&) = delete;
  TrainJobs& operator=(const TrainJobs&) = delete;
  virtual ~TrainJobs() = default;

  /// Whether all threads have ended: a failure ends a thread, and so does its last job.
  [[nodiscard]] virtual bool ended() const = 0;
  /// Stops the jobs that wait or run, waits for their end, and returns what was seen, in the order
  /// of the names.
  [[nodiscard]] virtual std::vector<TrainSummary> stop() = 0;
};

/// args: as the server takes them, "a=b, c=d". again: a job that ended well is sent again; else
/// each name has one job. Begins at once.
[[nodiscard]] std::unique_ptr<TrainJobs> begin_train_jobs(const ClientOptions& options,
                                                          const std::vector<std::string>& models,
                                                          const std::string& args, bool again);

}  // namespace sluice::server::workload
