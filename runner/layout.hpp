#pragma once
#include <filesystem>
#include <string>

#include "runner/model_backend.hpp"

namespace sluice::runner {

/// The worker programs.
inline constexpr const char* kTraceWorker = "sluice-worker-trace";
inline constexpr const char* kTorchWorker = "sluice-worker-torch";

/// Where the parts of this build or installation lie, found from the running program, which is in
/// ROOT/libexec/sluice. The tree is the same built and installed.
class Layout {
 public:
  explicit Layout(std::filesystem::path root) : root_(std::move(root)) {}
  /// The layout of the running program. Throws RunError if /proc is not there.
  [[nodiscard]] static Layout of_this_program();

  /// A program of ours, for instance program("sluice-exec").
  [[nodiscard]] std::string program(const std::string& name) const {
    return root_ / "libexec/sluice" / name;
  }
  /// What this build or installation can run models with.
  [[nodiscard]] Backends backends() const {
    return {root_ / "share/sluice/traces", std::filesystem::exists(program(kTorchWorker))};
  }

 private:
  std::filesystem::path root_;
};

}  // namespace sluice::runner
