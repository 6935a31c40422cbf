#pragma once
#include <cstdint>
#include <string>

namespace sluice::engine {

/// The work of a model's jobs. Each worker program has one backend; the job loop does the rest. For
/// one thread.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// One line for the log that says what runs.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Gives the GPU all the work of one job, in order. Asynchronous.
  virtual void launch_job() = 0;
  /// Waits until the GPU work of the last job has finished.
  virtual void wait_for_job() = 0;
  /// Called after each job, outside the measured time.
  virtual void after_job() {}

  struct Memory {
    std::uint64_t allocated_bytes = 0;
    std::uint64_t reserved_bytes = 0;
  };
  /// The maximum of device memory so far.
  [[nodiscard]] virtual Memory peak_memory() const { return {}; }
};

}  // namespace sluice::engine
