// A driver that lacks what the interposer calls: programs run on it as if we were not there.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "intercept/driver/entries.hpp"

namespace sluice::intercept::test {
namespace {

template <class Function>
Function find(void* driver, const char* name) {
  return reinterpret_cast<Function>(dlsym(driver, name));
}

// A man page's way to ask: clear, look up, and take any message for a failure.
TEST(OldDriver, WhatItLacksIsNoErrorOfTheProgram) {
  void* driver = dlopen(SLUICE_OLD_DRIVER, RTLD_NOW);
  ASSERT_NE(driver, nullptr) << dlerror();
  dlerror();
  ASSERT_NE(dlsym(driver, "cuLaunchKernel"), nullptr);
  const char* message = dlerror();
  EXPECT_EQ(message, nullptr) << message;
}

TEST(OldDriver, RunsUnattachedInsteadOfCrashing) {
  std::array<int, 2> errors{};
  ASSERT_EQ(pipe(errors.data()), 0);
  const int kept = dup(STDERR_FILENO);
  dup2(errors[1], STDERR_FILENO);
  void* driver = dlopen(SLUICE_OLD_DRIVER, RTLD_NOW);
  ASSERT_NE(driver, nullptr) << dlerror();
  const auto launch = find<decltype(&::cuLaunchKernel)>(driver, "cuLaunchKernel");
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(launch(nullptr, i, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              static_cast<CUresult>(i));
  }
  CUgraph graph = nullptr;
  EXPECT_EQ(find<decltype(&::cuStreamBeginCapture_v2)>(driver, "cuStreamBeginCapture_v2")(
                nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_SUCCESS);
  EXPECT_EQ(launch(nullptr, 7, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            static_cast<CUresult>(7));
  EXPECT_EQ(find<decltype(&::cuStreamEndCapture)>(driver, "cuStreamEndCapture")(nullptr, &graph),
            CUDA_SUCCESS);
  dup2(kept, STDERR_FILENO);
  std::string said(4096, '\0');
  const ssize_t size = read(errors[0], said.data(), said.size());
  said.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("CUDA 12.0 or later"), std::string::npos) << said;
}

// Found through us although no driver is there: an answer, not a crash.
TEST(NoDriver, AHookAnswersNotSupported) {
  if (void* real = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(real);
    GTEST_SKIP() << "this machine has a driver";
  }
  const auto launch = find<decltype(&::cuGraphLaunch)>(RTLD_DEFAULT, "cuGraphLaunch");
  ASSERT_NE(launch, nullptr);
  EXPECT_EQ(launch(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace sluice::intercept::test
