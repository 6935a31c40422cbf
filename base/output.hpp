#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"

/// What a command writes: files, and the folder of its results.
namespace sluice::base {

/// A file that is written line by line. When write() returns, the kernel has the text, so a SIGKILL
/// loses nothing. Throws RunError if the file cannot be created or written. Not thread-safe.
class LineFile {
 public:
  enum class Kind : std::uint8_t {
    kResult,  ///< Is emptied. A pipe gets everything, and its reader is waited for.
    kLog,     ///< Is not emptied. A pipe that is full loses the text, and no reader is waited for.
  };

  explicit LineFile(std::string path, Kind kind = Kind::kResult);
  void write(const std::string& text);

 private:
  std::string path_;
  Fd file_;
  std::string rest_;  ///< Of a line of which a pipe has taken a part.
};

/// A log that other programs rotate: its file is never emptied, each write goes to the end that the
/// file then has, and reopen() takes the file that has the name by then. Not thread-safe.
class Log {
 public:
  /// path: empty for none. what: for messages, such as "sluice serve: the access log". Throws
  /// RunError if the file cannot be opened.
  Log(std::string path, std::string what);

  [[nodiscard]] bool on() const { return !path_.empty(); }
  /// A full disk must not end a server: prints that the log has ended. reopen() begins it again.
  void write(const std::string& line);
  /// Goes on with the old file if the new one cannot be opened, and prints why.
  void reopen();

 private:
  std::string path_;
  std::string what_;
  std::optional<LineFile> file_;
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
