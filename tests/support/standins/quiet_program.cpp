// A program without CUDA. It prints what a program can see of itself: threads and files.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

/// Prints how many files of a folder have a name that holds `part`. There may be no such folder.
static void list(const std::string& folder, const std::string& part = "") {
  std::set<std::string> names;
  DIR* open = opendir(folder.c_str());
  while (const dirent* entry = open == nullptr ? nullptr : readdir(open)) {
    const std::string name = entry->d_name;
    if (name.find(part) != std::string::npos) names.insert(name);
  }
  if (open != nullptr) closedir(open);
  std::printf("%s: %zu\n", folder.c_str(), names.size());
}

int main() {
  list("/proc/self/task");
  list("/proc/self/fd");
  const std::string session = std::getenv("SLUICE_SESSION");
  list("/dev/shm", "." + session);  // boards of other sessions come and go
  list("/dev/shm/sluice-" + std::to_string(geteuid()), session + ".");
  std::printf("environment: %s\n", session.c_str());
  return 0;
}
