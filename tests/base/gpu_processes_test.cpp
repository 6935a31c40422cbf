// Who uses a GPU: what NVML says, on a library that stands in for it. The list of the simulated GPU
// is tested with real processes, in tests/tools.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/processes.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/standins/fakenvml.hpp"

namespace sluice::base {
namespace {

constexpr const char* kUuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
constexpr std::uint64_t kMiB = 1U << 20U;

/// The stand-in is loaded, so that the loader finds it under its name.
class GpuProcesses : public testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(SLUICE_TEST_NVML, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    nvml_ = reinterpret_cast<decltype(&fake_nvml)>(dlsym(library, "fake_nvml"))();
    *nvml_ = {};
    nvml_->uuid = kUuid;
  }
  void TearDown() override { EXPECT_EQ(nvml_->open, 0) << "a tool keeps the GPU awake"; }

  FakeNvml* nvml_ = nullptr;
};

TEST_F(GpuProcesses, AreThoseOfBothListsOnce) {
  nvml_->compute = {{4000001, 512 * kMiB}, {4000002, ~0ULL}};
  nvml_->mps = {{4000002, 3 * kMiB}, {4000003, 3 * kMiB}};
  const std::vector<GpuProcess> found = gpu_processes(kUuid);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].pid, 4000001);
  EXPECT_EQ(found[0].memory_bytes, 512 * kMiB);
  EXPECT_EQ(found[1].pid, 4000002);
  EXPECT_EQ(found[1].memory_bytes, std::nullopt) << "NVML says that it does not know";
  EXPECT_EQ(found[2].pid, 4000003);
}

// Prevents: a list that is cut, or given up, because there are more processes than expected.
TEST_F(GpuProcesses, AreAllOfMany) {
  for (unsigned i = 0; i < 300; ++i) nvml_->compute.push_back({4000000 + i, kMiB});
  EXPECT_EQ(gpu_processes(kUuid).size(), 300U);
}

// Prevents: no process on a MIG instance, whose UUID is the board's with another prefix in NVML.
TEST_F(GpuProcesses, OfAMigInstanceAreFound) {
  nvml_->uuid = "MIG-00112233-4455-6677-8899-aabbccddeeff";
  nvml_->compute = {{4000001, kMiB}};
  EXPECT_EQ(gpu_processes(kUuid).size(), 1U);
}

TEST_F(GpuProcesses, OfAGpuThatNvmlDoesNotKnowAreNone) {
  nvml_->compute = {{4000001, kMiB}};
  EXPECT_TRUE(gpu_processes("GPU-ffffffff-4455-6677-8899-aabbccddeeff").empty());
  EXPECT_TRUE(gpu_processes("").empty());
}

// Prevents: 0 % said of a GPU of which NVML says nothing, and the share of its memory taken.
TEST_F(GpuProcesses, KeepTheGpuBusyAsNvmlSays) {
  EXPECT_EQ(gpu_utilization(kUuid), std::nullopt) << "a MIG instance";
  nvml_->utilization = {83, 12};
  EXPECT_EQ(gpu_utilization(kUuid), 0.83);
  EXPECT_EQ(gpu_utilization("GPU-ffffffff-4455-6677-8899-aabbccddeeff"), std::nullopt);
  nvml_->utilization = {101, 0};
  EXPECT_EQ(gpu_utilization(kUuid), 1.0);
}

// Prevents: a context without work that counts as use, and use that nobody can see that counts as
// none.
TEST_F(GpuProcesses, UseTheGpuAsNvmlSays) {
  using Use = std::map<pid_t, unsigned>;
  EXPECT_EQ(gpu_use(kUuid, 0), std::nullopt) << "a MIG instance";
  nvml_->samples.emplace();
  EXPECT_EQ(gpu_use(kUuid, 0), Use{}) << "NVML finds no sample";
  nvml_->samples = {{4000001, 100, 90},
                    {4000001, 300, 40},
                    {4000001, 400, 41},
                    {4000002, 300, 0},
                    {4000003, 300, 3'000'000'000},
                    {0, 300, 7}};
  EXPECT_EQ(gpu_use(kUuid, 200), (Use{{4000001, 41}, {4000002, 0}}));
  EXPECT_EQ(gpu_use(kUuid, 400), Use{});
  EXPECT_EQ(gpu_use("GPU-ffffffff-4455-6677-8899-aabbccddeeff", 0), std::nullopt);
  for (unsigned i = 0; i < 300; ++i) nvml_->samples->push_back({5000000 + i, 500, 1});
  EXPECT_EQ(gpu_use(kUuid, 400)->size(), 300U);
}

// Prevents: a warning of MPS itself, which is listed with the memory of its clients.
TEST_F(GpuProcesses, AreWithoutTheMpsServer) {
  test::ForkedChild server([] {
    // The kernel cuts names to 15 bytes.
    if (FILE* name = std::fopen("/proc/self/comm", "w")) {
      std::fputs("nvidia-cuda-mps-server", name);
      std::fclose(name);
    }
    pause();
    return 0;
  });
  nvml_->compute = {{static_cast<unsigned>(server.pid()), kMiB}, {4000001, kMiB}};
  std::vector<GpuProcess> found;
  for (int i = 0; i < 200 && found.size() != 1; ++i) {
    usleep(10'000);  // until the child has its name
    found = gpu_processes(kUuid);
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, 4000001);
  server.signal(SIGKILL);
  server.wait();
}

TEST(MappedFiles, AreKnownByTheirName) {
  EXPECT_TRUE(has_mapped(getpid(), "/libc.so.6"));
  EXPECT_FALSE(has_mapped(getpid(), "/libnothing.so"));
  EXPECT_FALSE(has_mapped(999999999, "/libc.so.6"));
  EXPECT_TRUE(simulated_gpu_processes("test-of-nobody").empty()) << "all processes of the machine";
}

}  // namespace
}  // namespace sluice::base
