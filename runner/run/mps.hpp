#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace sluice::runner {

/// A private NVIDIA MPS daemon: its clients share the GPU at the same time instead of in turns. It
/// has pipes of its own, so that no other MPS of the machine is met, and ends with this object, or
/// with this process however that ends.
class MpsDaemon {
 public:
  /// Starts it, with its log in `log_folder`, and waits until it takes clients. `program` is
  /// nvidia-cuda-mps-control. Throws base::RunError with its last line.
  MpsDaemon(const std::string& program, const std::string& log_folder);
  /// Ends it and its server, within 10 s. Its clients should have ended before.
  ~MpsDaemon();
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  /// What a client needs in its environment. MPS knows two priorities: normal and below.
  [[nodiscard]] std::vector<std::string> environment(bool below_normal) const;

 private:
  void wait_until_ready();
  void stop() noexcept;

  std::string pipes_;
  std::string log_folder_;
  pid_t pid_ = -1;
};

/// The path of nvidia-cuda-mps-control. Throws base::UsageError where there is none.
[[nodiscard]] std::string find_mps_control();

}  // namespace sluice::runner
