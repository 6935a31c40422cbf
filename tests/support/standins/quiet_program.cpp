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
  list("/dev/shm", ".quiet");  // boards of other sessions come and go
  list("/dev/shm/sluice-" + std::to_string(geteuid()), "quiet.");
  std::printf("environment: %s\n", std::getenv("SLUICE_SESSION"));
  return 0;
}
