#pragma once
#include <sys/stat.h>

#include <string>

namespace sluice::base {

/// Whether `path` still leads to the file behind `fd`. Between open and lock, another process may
/// have removed the name.
inline bool still_named(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace sluice::base
