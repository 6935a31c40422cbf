#include "base/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.hpp"

namespace sluice::base {

namespace {

bool is_pipe(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISFIFO(about.st_mode);
}

void say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

Fd open_to_write(const std::string& path, LineFile::Kind kind) {
  if (kind == LineFile::Kind::kResult) {
    return Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_TRUNC, 0666));
  }
  // To open a pipe only for writing waits for its reader, or fails without one. As its own reader,
  // this process also survives the end of another one.
  if (is_pipe(path)) return Fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  return Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666));
}

}  // namespace

LineFile::LineFile(std::string path, Kind kind)
    : path_(std::move(path)), file_(open_to_write(path_, kind)) {
  if (!file_) throw RunError(path_ + ": cannot be created: " + std::strerror(errno));
}

void LineFile::write(const std::string& text) {
  const std::string all = std::exchange(rest_, {}) + text;
  const std::size_t begun = all.size() - text.size();
  for (std::size_t done = 0; done < all.size();) {
    const ssize_t written = ::write(file_.get(), all.data() + done, all.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      // The end of a line that has begun must come before the next line.
      rest_ = done <= begun ? all.substr(done, begun - done) : all.substr(done);
      return;
    } else if (errno != EINTR) {
      throw RunError(path_ + ": cannot be written: " + std::strerror(errno));
    }
  }
}

Log::Log(std::string path, std::string what) : path_(std::move(path)), what_(std::move(what)) {
  if (!on()) return;
  // Stays open until the log is: otherwise a reader that waits for a writer would find it gone.
  const Fd probe(open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
  file_.emplace(path_, LineFile::Kind::kLog);
  if (!probe && is_pipe(path_)) {
    say(what_ + ": nobody reads the pipe " + path_ + "; what it cannot hold is lost");
  }
}

void Log::write(const std::string& line) {
  if (!file_) return;
  try {
    file_->write(line);
  } catch (const RunError& error) {
    say(what_ + " ends: " + error.what());
    file_.reset();
  }
}

void Log::reopen() {
  if (!on()) return;
  try {
    file_ = LineFile(path_, LineFile::Kind::kLog);
  } catch (const RunError& error) {
    say(what_ + (file_ ? " stays in its old file: " : " does not begin again: ") + error.what());
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
