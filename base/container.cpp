#include "base/container.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <fstream>

namespace sluice::base {
namespace {

// The numbers of the first namespaces, which never change: include/linux/proc_ns.h of the kernel.
constexpr const char* kFirstPids = "pid:[4026531836]";
constexpr const char* kFirstIpc = "ipc:[4026531839]";
constexpr int kMostAncestors = 64;

std::string link_at(const std::string& path) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = readlink(path.c_str(), text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(size > 0 ? size : 0)};
}

/// The pid of the parent of a process; 0 if it cannot be read.
int parent_of(const std::string& process) {
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  }
  return 0;
}

/// Whether a process from which this one descends sees another /dev/shm.
bool has_other_shm_than_an_ancestor(const std::string& proc) {
  struct stat own {};
  if (stat((proc + "/self/root/dev/shm").c_str(), &own) != 0) return false;
  int pid = parent_of(proc + "/self");
  for (int i = 0; i < kMostAncestors && pid > 0; ++i) {
    const std::string process = proc + "/" + std::to_string(pid);
    struct stat theirs {};
    if (stat((process + "/root/dev/shm").c_str(), &theirs) == 0 && theirs.st_dev != own.st_dev) {
      return true;
    }
    pid = parent_of(process);
  }
  return false;
}

}  // namespace

std::string separation_in(const std::string& proc) noexcept {
  try {
    const std::string pids = link_at(proc + "/self/ns/pid");
    const std::string ipc = link_at(proc + "/self/ns/ipc");
    if (!pids.empty() && pids != kFirstPids) return "a pid namespace of its own";
    if (!ipc.empty() && ipc != kFirstIpc) return "an ipc namespace of its own";
    if (has_other_shm_than_an_ancestor(proc)) return "a /dev/shm of its own";
  } catch (const std::exception&) {  // no memory
  }
  return {};
}

std::string separation() noexcept { return separation_in("/proc"); }

}  // namespace sluice::base
