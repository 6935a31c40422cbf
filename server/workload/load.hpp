#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/workload/arrivals.hpp"
#include "server/workload/client.hpp"

/// Sends the requests when they are due, and takes the times.
namespace sluice::server::workload {

struct LoadOptions {
  std::optional<double> duration_s = {};
  std::optional<std::uint64_t> count = {};  ///< Of all models.
  std::size_t max_outstanding = 1000;       ///< Of each model with an open loop.
  std::optional<std::uint64_t> announce_ns =
      {};  ///< How long before its body a request has headers.
  std::uint32_t seed = 0;
  double drain_s = 30;  ///< How long answers may take after the last request.
};

/// Times in ns after the start of the run.
struct Record {
  std::uint32_t worker = 0;
  bool sent = true;          ///< False: too many were outstanding.
  std::optional<Code> code;  ///< Nothing: no answer when the run ended.
  std::uint64_t due_ns = 0;  ///< When the whole request was to be sent.
  std::uint64_t sent_ns = 0;
  std::uint64_t end_ns = 0;  ///< With `code`: of the answer.
};

enum class Ended { kTime, kDone, kInterrupted };

struct LoadResult {
  std::vector<Record> records;
  /// Of each worker, the first message of each code.
  std::vector<std::map<Code, std::string>> messages;
  double sending_s = 0;  ///< How long requests were sent.
  Ended ended = Ended::kDone;
};

struct LoadProgress {
  double s = 0;
  std::uint64_t answered = 0, errors = 0, outstanding = 0;
};

struct LoadEvents {
  /// Every 5 s.
  std::function<void(const LoadProgress&)> progress = [](const LoadProgress&) {};
  /// Of each answer, in a thread of the client. number: of the request, counted over all models.
  std::function<void(const Worker&, std::uint64_t number, const Answer&)> answer;
};

/// Runs to the end: of the time, the count or the arrivals, or until `interrupt_fd` (or -1) is
/// readable. workers[i] sends the prepared request requests[i].
[[nodiscard]] LoadResult run_load(Client& client, const std::vector<Worker>& workers,
                                  const std::vector<std::size_t>& requests,
                                  const LoadOptions& options, int interrupt_fd,
                                  const LoadEvents& events);

}  // namespace sluice::server::workload
