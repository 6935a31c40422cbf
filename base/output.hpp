#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "base/fd.hpp"

/// What a command writes: files, and the folder of its results.
namespace sluice::base {

/// A file that is written line by line. When write() returns, the kernel has the text, so a SIGKILL
/// loses nothing. Throws RunError if the file cannot be created or written.
class LineFile {
 public:
  explicit LineFile(std::string path);
  void write(const std::string& text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

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
