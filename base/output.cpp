#include "base/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.hpp"

namespace sluice::base {

LineFile::LineFile(std::string path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "we")) {
  if (!file_) throw RunError(path_ + ": cannot be created: " + std::strerror(errno));
}

void LineFile::write(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                       std::fflush(file_.get()) == 0;
  if (!written) {
    throw RunError(path_ + ": cannot be written: " + std::strerror(errno));
  }
}

FolderLock::FolderLock(const std::string& folder, const std::string& command)
    : path_(folder + "/run.lock") {
  for (;;) {
    Fd file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file) return;
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return;
      std::string pid;
      std::getline(std::ifstream(path_), pid);
      throw UsageError(
          fmt::format("{} is in use by another `{}`{}; choose another folder with --out", folder,
                      command, pid.empty() ? "" : ", pid " + pid));
    }
    // The previous run may have removed the file after we opened it.
    if (!still_named(file.get(), path_)) continue;
    const std::string pid = std::to_string(getpid()) + "\n";
    const bool noted = ftruncate(file.get(), 0) == 0 && write(file.get(), pid.data(), pid.size()) ==
                                                            static_cast<ssize_t>(pid.size());
    static_cast<void>(noted);  // the pid is only for the error message
    file_ = std::move(file);
    return;
  }
}

FolderLock::~FolderLock() {
  // The name goes first: after that the next run creates its own lock file.
  if (file_) unlink(path_.c_str());
}

}  // namespace sluice::base
