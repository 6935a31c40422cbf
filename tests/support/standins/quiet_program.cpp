// A program without CUDA. Says what a program can see of itself: threads, files, output.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

/// How many files lie there, of those whose names end like this.
static void list(const char* folder, const std::string& ending = "") {
  std::set<std::string> names;
  DIR* open = opendir(folder);
  while (const dirent* entry = readdir(open)) {
    const std::string name = entry->d_name;
    if (name.ends_with(ending)) names.insert(name);
  }
  closedir(open);
  std::printf("%s: %zu\n", folder, names.size());
}

int main() {
  list("/proc/self/task");
  list("/proc/self/fd");
  list("/dev/shm", ".quiet");  // boards of other sessions come and go
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  list(runtime == nullptr ? "/" : runtime);
  std::printf("environment: %s\n", std::getenv("SLUICE_SESSION"));
  return 0;
}
