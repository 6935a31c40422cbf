#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "base/metrics_text.hpp"
#include "base/output.hpp"
#include "server/service/service.hpp"

namespace sluice::server {

/// The answer to a request for inference, as the metrics and the access log have it.
struct Outcome {
  std::string model;    ///< Empty: unknown.
  std::string version;  ///< Empty: none was found.
  Code code = Code::kOk;
  std::string_view reason;  ///< See Status::reason.
  std::string id;
  std::string trace;
  double ms = 0;  ///< From the headers to the answer.
};

/// Counts each request once, whoever answers it, and writes the access log. The counts stay as long
/// as the server lives. Thread-safe.
class Outcomes {
 public:
  /// log: a file; empty for none. Throws base::RunError.
  explicit Outcomes(const std::string& log);

  void add(const Outcome& outcome);
  /// After the log was rotated.
  void reopen();
  void write(base::MetricsText& out) const;

 private:
  using Key = std::tuple<std::string, std::string, Code, std::string_view>;

  mutable std::mutex mutex_;
  std::map<Key, std::uint64_t> counts_;
  base::Log log_;
};

}  // namespace sluice::server
