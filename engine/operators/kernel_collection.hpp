#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/operators/operator_table.hpp"

/// The kernels of this process, from CUPTI.
namespace sluice::engine {

/// One for a process: CUPTI serves one user.
class KernelCollection {
 public:
  /// Loads libsluice_cupti.so and begins. Call it before anything uses the GPU. Throws
  /// base::RunError with the reason if there are no kernels to be had.
  explicit KernelCollection(const std::string& library);

  /// Bracket what this thread launches. `mark` is not 0.
  void begin(std::uint64_t mark) const { begin_(mark); }
  void end() const { end_(0); }

  /// The kernels that have ended since the last call, with their marks, in the order in which they
  /// began. Kernels outside of all brackets are left out.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, KernelTimes>> take() const;

 private:
  void (*begin_)(std::uint64_t) = nullptr;
  void (*end_)(std::uint64_t) = nullptr;
  void (*flush_)() = nullptr;
};

}  // namespace sluice::engine
