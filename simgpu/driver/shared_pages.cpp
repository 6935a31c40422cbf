#include "simgpu/driver/shared_pages.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

namespace sluice::simgpu {
namespace {

// A line of /proc/self/maps.
struct Line {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  char mode[5] = "";
  unsigned major = 0;
  unsigned minor = 0;
  std::uint64_t inode = 0;
  std::string path;

  [[nodiscard]] bool writable() const { return mode[1] == 'w'; }
};

bool parse(const std::string& text, Line& line) {
  unsigned long start = 0;
  unsigned long end = 0;
  unsigned long offset = 0;
  unsigned long inode = 0;
  int path_at = 0;
  if (std::sscanf(text.c_str(), "%lx-%lx %4s %lx %x:%x %lu %n", &start, &end, line.mode, &offset,
                  &line.major, &line.minor, &inode, &path_at) < 7) {
    return false;
  }
  line.start = start;
  line.end = end;
  line.offset = offset;
  line.inode = inode;
  line.path = text.substr(static_cast<std::size_t>(path_at));
  return true;
}

bool is_same_file(const base::Fd& file, const Line& line) {
  struct stat status {};
  return file && fstat(file.get(), &status) == 0 && status.st_ino == line.inode &&
         major(status.st_dev) == line.major && minor(status.st_dev) == line.minor;
}

base::Fd open_again(const std::string& path, const Line& line) {
  base::Fd file(open(path.c_str(), (line.writable() ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  return is_same_file(file, line) ? std::move(file) : base::Fd();
}

// A file that this process has open, without opening it anew: it may belong to another user, like
// the board of a node.
base::Fd duplicate(int number, const Line& line) {
  base::Fd file(fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const int access = file ? fcntl(file.get(), F_GETFL) & O_ACCMODE : O_WRONLY;
  const bool usable = access == O_RDWR || (access == O_RDONLY && !line.writable());
  return usable && is_same_file(file, line) ? std::move(file) : base::Fd();
}

// Finds a memfd or unnamed file, which this process may still have open.
base::Fd find_among_open(const Line& line) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (!folder) return {};
  while (const dirent* entry = readdir(folder.get())) {
    if (*entry->d_name == '.') continue;
    if (base::Fd file = duplicate(std::atoi(entry->d_name), line)) return file;
    if (base::Fd file = open_again(std::string("/proc/self/fd/") + entry->d_name, line))
      return file;
  }
  return {};
}

base::Fd open_file_of(const Line& line) {
  if (base::Fd file = open_again(line.path, line)) return file;
  char range[64];
  std::snprintf(range, sizeof range, "/proc/self/map_files/%lx-%lx",
                static_cast<unsigned long>(line.start), static_cast<unsigned long>(line.end));
  if (base::Fd file = open_again(range, line)) return file;
  return find_among_open(line);
}

}  // namespace

SharedPages find_shared_pages(std::uint64_t address, std::uint64_t bytes) {
  std::ifstream maps("/proc/self/maps");
  std::string text;
  while (std::getline(maps, text)) {
    Line line;
    if (!parse(text, line) || address < line.start || address >= line.end) continue;
    const bool shared_file = line.mode[3] == 's' && line.inode != 0;
    if (!shared_file || address + bytes > line.end) return {};
    return {open_file_of(line), line.offset + (address - line.start)};
  }
  return {};
}

bool is_writable(std::uint64_t address, std::uint64_t bytes) {
  std::ifstream maps("/proc/self/maps");
  std::string text;
  for (std::uint64_t at = address; std::getline(maps, text);) {
    Line line;
    if (!parse(text, line) || at < line.start || at >= line.end) continue;
    if (!line.writable()) return false;
    at = line.end;
    if (at >= address + bytes) return true;
  }
  return false;
}

}  // namespace sluice::simgpu
