#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/workload/load.hpp"

/// What a run measured. The table and the trace are those of the published client, to the letter.
namespace sluice::server::workload {

/// Of one model. Latency counts from the due time of a request to its answer.
struct Summary {
  std::vector<double> latency_ms;        ///< Of the requests with a good answer.
  std::vector<double> lag_ms;            ///< Of those sent: sent minus due.
  std::uint64_t refused = 0;             ///< RESOURCE_EXHAUSTED
  std::uint64_t not_sent = 0;            ///< Too many were outstanding.
  std::uint64_t unanswered = 0;          ///< When the run ended.
  std::uint64_t deadline_misses = 0;     ///< Late answers, and DEADLINE_EXCEEDED.
  std::map<Code, std::uint64_t> errors;  ///< Refusals too.
};

[[nodiscard]] Summary summarise(const std::vector<Record>& records, std::uint32_t worker,
                                std::optional<double> slo_ms);

/// The boxed table. seconds: how long requests were sent.
[[nodiscard]] std::string table(const std::string& model, const Summary& summary, double seconds);

/// The lines `[InferWorker TRACE m]` of the good answers, in the order of their due times.
[[nodiscard]] std::string trace(const std::string& model, const std::vector<Record>& records,
                                std::uint32_t worker);

/// The part of the JSON report about one model.
[[nodiscard]] nlohmann::json to_json(const Worker& worker, const Summary& summary, double seconds);

/// What a user sees every 5 s. duration_s: of the whole run, if it has a time.
[[nodiscard]] std::string progress_line(const LoadProgress& progress,
                                        std::optional<double> duration_s);

/// For a user: how many requests of a model had no good answer, and why. messages: of the first
/// error of each code.
[[nodiscard]] std::vector<std::string> error_lines(const std::string& model, const Summary& summary,
                                                   const std::map<Code, std::string>& messages);

/// Every request in the order of the due times. Begins with the columns of a file for --trace.
[[nodiscard]] std::string csv(const std::vector<Worker>& workers,
                              const std::vector<Record>& records);

/// For --show-result: the first (count > 0) or last (count < 0) values of an output.
[[nodiscard]] std::string show_result(std::uint64_t number, const Output& output,
                                      std::int64_t count);

}  // namespace sluice::server::workload
