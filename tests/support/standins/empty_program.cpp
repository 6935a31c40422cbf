// A program without CUDA. Its exit code is its number of threads.
#include <dirent.h>

int main() {
  DIR* tasks = opendir("/proc/self/task");
  int entries = 0;
  while (readdir(tasks) != nullptr) ++entries;
  closedir(tasks);
  return entries - 2;  // without . and ..
}
