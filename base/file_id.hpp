#pragma once
#include <sys/stat.h>
#include <sys/types.h>

namespace sluice::base {

/// Which file a descriptor leads to. A library in a process of another program asks before it
/// closes or writes to a number that it has kept: the program may have closed the number, and
/// another file may have it now.
class FileId {
 public:
  constexpr FileId() = default;  ///< Of no file.
  explicit FileId(int fd) noexcept {
    struct stat found {};
    if (fd < 0 || fstat(fd, &found) != 0) return;
    device_ = found.st_dev;
    inode_ = found.st_ino;
  }
  /// Whether the descriptor leads to this file.
  [[nodiscard]] bool is_at(int fd) const noexcept {
    const FileId now(fd);
    return inode_ != 0 && now.device_ == device_ && now.inode_ == inode_;
  }

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace sluice::base
