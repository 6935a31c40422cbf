// main() of the tests that need the interposer in front of libcuda: puts it there, then runs.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (dlsym(RTLD_DEFAULT, "sluice_v1_attached") == nullptr) {
    if (std::getenv("LD_PRELOAD") != nullptr) {
      std::fprintf(stderr, "LD_PRELOAD is set, but not to " SLUICE_INTERCEPT_LIBRARY "\n");
      return 2;
    }
    setenv("LD_PRELOAD", SLUICE_INTERCEPT_LIBRARY, 1);
    execv("/proc/self/exe", argv);
    std::perror("exec");
    return 2;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
