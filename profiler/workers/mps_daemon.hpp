#pragma once
#include <sys/types.h>

#include <filesystem>

#include "base/fd.hpp"

namespace sluice::profiler {

/// A private MPS daemon. It sets its variables in our environment, for children that start while it
/// lives. It is the child `sluice mps`, which ends when its standard input does, so the daemon also
/// ends with this process.
class MpsDaemon {
 public:
  /// Throws base::RunError if the daemon does not start.
  MpsDaemon();
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;
  ~MpsDaemon() { end(); }

 private:
  void end();

  std::filesystem::path log_;
  base::Fd stdin_;
  pid_t pid_ = -1;
};

}  // namespace sluice::profiler
