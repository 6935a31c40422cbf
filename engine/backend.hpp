#pragma once
#include <cstdint>
#include <string>

namespace sluice::engine {

/// What a model's jobs are made of. A worker program brings one; the job loop does the rest.
/// Used by one thread.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// One line for the log: what is run.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Gives the GPU all work of one job, in order. Asynchronous.
  virtual void launch_job() = 0;
  /// Returns when that work is done.
  virtual void wait_for_job() = 0;
  /// Called after each job, outside what is measured.
  virtual void after_job() {}

  struct Memory {
    std::uint64_t allocated_bytes = 0;
    std::uint64_t reserved_bytes = 0;
  };
  /// The most device memory this backend has held so far.
  [[nodiscard]] virtual Memory peak_memory() const { return {}; }
};

}  // namespace sluice::engine
