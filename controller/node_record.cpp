#include "controller/node_record.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "shm/node_memory.hpp"

namespace sluice::controller {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

bool is_number(const char* text) { return std::isdigit(static_cast<unsigned char>(*text)) != 0; }

/// Whether the link of an open file has the name of our memory. The name only saves work: any
/// process may have a file of this name.
bool has_name(int folder, const char* entry) {
  std::array<char, 128> target{};
  if (readlinkat(folder, entry, target.data(), target.size() - 1) <= 0) return false;
  return std::string_view(target.data()).starts_with(std::string("/memfd:") + shm::kNodeMemory);
}

/// Whether it is the recorded file. Does not ask the file system, which may be one of a user.
bool is_recorded(int file, const NodeRecord& record) {
  struct statx found {};
  return statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &found) == 0 &&
         found.stx_ino == record.inode &&
         makedev(found.stx_dev_major, found.stx_dev_minor) == record.device;
}

/// First without access to the file: opening a device, for example, may have effects. Only what is
/// the recorded memory is opened.
base::Fd open_recorded(int folder, const char* entry, const NodeRecord& record) {
  const base::Fd place(openat(folder, entry, O_PATH | O_CLOEXEC));
  if (!place || !is_recorded(place.get(), record)) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(place.get());
  return base::Fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
}

base::Fd find_in_process(const std::string& pid, const NodeRecord& record, int& unseen) {
  const Folder files(opendir(("/proc/" + pid + "/fd").c_str()));
  if (!files) {
    unseen += errno == EACCES || errno == EPERM ? 1 : 0;
    return {};
  }
  while (const dirent* entry = readdir(files.get())) {
    if (!is_number(entry->d_name) || !has_name(dirfd(files.get()), entry->d_name)) continue;
    base::Fd found = open_recorded(dirfd(files.get()), entry->d_name, record);
    if (found) return found;
  }
  return {};
}

[[noreturn]] void fail(const std::string& file) {
  throw std::runtime_error("cannot write " + file + ": " + std::strerror(errno));
}

}  // namespace

std::optional<NodeRecord> read_record(const std::string& file) {
  std::ifstream in(file);
  NodeRecord record;
  if (in >> record.device >> record.inode >> record.board_id) return record;
  return std::nullopt;
}

void write_record(const std::string& file, const NodeRecord& record) {
  const std::string text = std::to_string(record.device) + " " + std::to_string(record.inode) +
                           " " + std::to_string(record.board_id) + "\n";
  const std::string fresh = file + ".new";
  unlink(fresh.c_str());
  {
    const base::Fd out(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!out || write(out.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      fail(fresh);
    }
  }
  if (rename(fresh.c_str(), file.c_str()) != 0) fail(file);
}

NodeRecord record_of(int memory, std::uint64_t board_id) {
  struct stat about {};
  fstat(memory, &about);
  return {about.st_dev, about.st_ino, board_id};
}

base::Fd find_memory(const NodeRecord& record, int& unseen) {
  unseen = 0;
  const Folder processes(opendir("/proc"));
  while (const dirent* entry = processes ? readdir(processes.get()) : nullptr) {
    if (!is_number(entry->d_name)) continue;
    base::Fd found = find_in_process(entry->d_name, record, unseen);
    if (found) return found;
  }
  return {};
}

}  // namespace sluice::controller
