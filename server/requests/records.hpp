#pragma once
#include <cstdint>
#include <mutex>
#include <string>

#include "base/output.hpp"
#include "server/requests/execution.hpp"

namespace sluice::server {

/// One JSON line for each answered request, with the published keys and ours.
/// docs/reference/server-files.md describes them. Thread-safe.
class Records {
 public:
  /// file: empty for none. Throws base::RunError.
  Records(const std::string& file, std::string policy, std::string device);

  void set_policy(std::string policy);
  /// After the file was rotated.
  void reopen();
  void write(const Execution& execution, const Pending& pending, const Status& status);

 private:
  std::mutex mutex_;
  base::Log file_;
  std::string policy_;
  std::string device_;
};

/// The published log line of a batch: what each part of it took. output_ns: taking and sending its
/// outputs. now_ns: the end.
[[nodiscard]] std::string batch_line(const Execution& execution, std::uint64_t output_ns,
                                     std::uint64_t now_ns);

}  // namespace sluice::server
