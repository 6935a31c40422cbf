#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice::server::workload {

/// Values by model, as in `--poisson resnet50=20 --poisson bert=5`.
using ByModel = std::map<std::string, std::vector<double>>;

/// The command line of `sluice hybrid_workload`.
struct Options {
  bool infer = true;
  std::vector<std::string> infer_models;  ///< As given: m, m-p, m-d, m-dp, each perhaps with [n].
  std::vector<std::string> train_models;  ///< Empty: no training.
  int num_epoch = 1;                      ///< Of training.
  int train_batch_size = 1;
  std::optional<double> duration_s;
  std::optional<std::uint64_t> count;
  std::size_t concurrency = 10;
  ByModel poisson, interval_ms, change_s, dynamic_concurrency, dynamic_poisson;
  std::optional<double> random_dynamic_poisson;  ///< With --benchmark.
  std::optional<double> lambda_ms;
  ByModel lambda_of_ms;
  bool near_periodic = true;  ///< --arrival
  std::string trace_file;
  std::uint32_t seed = 0;
  std::size_t max_outstanding = 1000;

  std::string host = "127.0.0.1";
  int port = 0;
  bool http = false;
  std::int64_t batch = 1;
  std::int64_t dim = 1;
  bool random_inputs = false;
  std::optional<double> announce_ms;
  std::optional<double> slo_ms;

  std::optional<std::size_t> empty_server;  ///< Bytes of its answers.

  std::string log_file;
  std::string csv_file;
  int verbose = 0;
  std::int64_t show_result = 0;
  bool json = false;
};

/// Returns nothing, or the exit code with which to exit now. Throws UsageError.
[[nodiscard]] std::optional<int> parse_workload_options(int argc, const char* const* argv,
                                                        Options& options);

/// The words of an option that takes values by model: `m=1,2,3` or, as the published client writes
/// it, `m 1 2 3`. Throws UsageError. Public for its tests.
[[nodiscard]] ByModel parse_by_model(const std::string& option,
                                     const std::vector<std::string>& words);

}  // namespace sluice::server::workload
