#pragma once
#include <string>

#include "base/fd.hpp"

namespace sluice::base {

/// A lock on a folder that a command writes to. While this object lives, another one for the folder
/// is refused. The kernel releases the lock when this process dies. On a file system without locks,
/// and in a folder that cannot be written, there is none.
class FolderLock {
 public:
  /// The folder must exist. `command`: who holds it, for the message. Throws UsageError if the
  /// folder is in use.
  FolderLock(const std::string& folder, const std::string& command);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string path_;  ///< Of the lock file.
  Fd file_;
};

}  // namespace sluice::base
