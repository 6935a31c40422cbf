#pragma once
#include <cuda.h>

#include <cstdint>
#include <string>

#include "progress.hpp"

/// The driver API as the client uses it. A failed call ends the process with a line.
namespace sluice::test {

/// Ends the process with exit code 3 and a line on stdout and stderr if the call failed.
void check(CUresult result, const char* call);

/// The context of device 0 and the kernel that runs for as long as its argument says.
class Gpu {
 public:
  /// Makes the device's primary context current. `path` is the file of the Progress.
  explicit Gpu(const std::string& path);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Makes the context current in the calling thread.
  void enter() const;
  [[nodiscard]] static CUstream new_stream();
  /// Launches a kernel of `us` microseconds. Returns the result, which a forked child checks.
  CUresult launch(CUstream stream, std::uint64_t us, unsigned blocks = 1) const;
  /// Makes the stream write `value` to a word of the progress.
  static void stamp(CUstream stream, std::atomic<std::uint64_t>& word, std::uint64_t value);
  /// Makes the stream wait until Progress::release is not 0.
  void hold(CUstream stream) const;

  [[nodiscard]] Progress& progress() const { return *progress_; }

 private:
  CUcontext context_ = nullptr;
  CUfunction spin_ = nullptr;
  Progress* progress_ = nullptr;
};

}  // namespace sluice::test
