// Several processes on one simulated GPU. The test process makes no driver call: its children make
// them, each after its fork.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/session.hpp"
#include "tests/simgpu/gpu.hpp"
#include "tests/simgpu/gpu_socket.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/gpu_log.hpp"
#include "tests/support/session.hpp"
#include "tests/support/shared.hpp"

namespace {

using sluice::base::monotonic_ns;
using sluice::simgpu::test::Gpu;
using sluice::test::eventually;
using sluice::test::ForkedChild;
using sluice::test::LoggedWork;

struct Words {
  std::atomic<std::uint64_t> gate;
  std::atomic<std::uint64_t> progress;
  std::atomic<std::uint32_t> ready;
  std::atomic<int> pids[16];
};

class Processes : public ::testing::Test {
 protected:
  Processes() { setenv("SLUICE_SIM_SCALE", "2", 1); }

  [[nodiscard]] std::string socket_file() const {
    return sluice::base::runtime_dir() + "/" + session.name() + ".simgpu";
  }

  [[nodiscard]] int gpu_pid() const { return sluice::simgpu::test::pid_behind(socket_file()); }

  // Launches kernels on a parked stream until the queue is full, then reports that and blocks.
  int fill_queue_and_block() const {
    const Gpu gpu;
    CUdeviceptr gate = 0;
    CUstream stream = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuMemHostRegister(&shared, sizeof shared, 0);
    cuMemHostGetDevicePointer(&gate, &shared.gate, 0);
    cuStreamWaitValue64(stream, gate, 0, CU_STREAM_WAIT_VALUE_EQ);
    for (int i = 0; i < 5000; ++i) {
      if (gpu.launch(stream, 1000) != CUDA_SUCCESS) return 3;
      shared.ready = static_cast<std::uint32_t>(i);
    }
    return cuStreamSynchronize(stream) == CUDA_SUCCESS ? 0 : 4;
  }

  int count_kernels_until(std::uint64_t target) const {
    const Gpu gpu;
    CUstream stream = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    while (shared.progress < target) {
      if (gpu.launch(stream, 100'000) != CUDA_SUCCESS) return 3;
      if (cuStreamSynchronize(stream) != CUDA_SUCCESS) return 4;
      ++shared.progress;
    }
    return 0;
  }

  [[nodiscard]] std::vector<LoggedWork> log() const { return sluice::test::GpuLog(gpu_log).all(); }

  const sluice::test::Session session{"simgpu"};
  const std::string gpu_log = session.log_gpu();
  const sluice::test::Shared<Words> page;
  Words& shared = *page;
};

TEST_F(Processes, AKilledClientDisturbsNoOtherClient) {
  shared.gate = 1;
  ForkedChild worker([&] { return count_kernels_until(200); });
  ForkedChild victim([&] { return fill_queue_and_block(); });
  EXPECT_TRUE(eventually([&] { return shared.ready > 1000 && shared.progress > 20; }));
  const std::uint64_t before = shared.progress;
  victim.signal(SIGKILL);
  victim.wait();
  EXPECT_TRUE(eventually([&] { return shared.progress > before + 50; }));
  shared.progress = 200;
  EXPECT_EQ(worker.wait(), 0);
}

// A client that hangs together with its GPU process would block everything that waits for the
// client.
TEST_F(Processes, WhenTheGpuProcessIsKilledCallsFailAndNoneHangs) {
  ForkedChild client([&] {
    const Gpu gpu;
    CUstream stream = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    gpu.launch(stream, 60'000'000'000);
    shared.progress = 1;
    if (cuStreamSynchronize(stream) != CUDA_ERROR_DEVICE_UNAVAILABLE) return 3;
    if (cuStreamQuery(stream) != CUDA_ERROR_DEVICE_UNAVAILABLE) return 4;
    CUdeviceptr memory = 0;
    return cuMemAlloc(&memory, 64) == CUDA_ERROR_DEVICE_UNAVAILABLE ? 0 : 5;
  });
  ForkedChild blocked([&] {
    shared.gate = 1;
    return fill_queue_and_block();
  });
  // Wait for both clients: a late one would start a new GPU process and wait for its long kernel.
  ASSERT_TRUE(eventually([&] { return shared.ready > 1000 && shared.progress == 1; }));
  ASSERT_GT(gpu_pid(), 0);
  kill(gpu_pid(), SIGKILL);
  EXPECT_EQ(client.wait(), 0);
  EXPECT_EQ(blocked.wait(), 3);
}

TEST_F(Processes, AfterAKilledGpuProcessTheNextClientGetsANewOne) {
  ASSERT_EQ(ForkedChild([&] { return count_kernels_until(1); }).wait(), 0);
  const int first = gpu_pid();
  ASSERT_GT(first, 0);
  kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return gpu_pid() == 0; }));
  shared.progress = 0;
  EXPECT_EQ(ForkedChild([&] { return count_kernels_until(1); }).wait(), 0);
  EXPECT_NE(gpu_pid(), first);
}

TEST_F(Processes, ExitWithParkedWorkReturnsAtOnce) {
  shared.gate = 1;
  ForkedChild child([&] {
    std::thread([&] { fill_queue_and_block(); }).detach();
    while (shared.ready < 1000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    exit(7);  // NOLINT: runs the exit handlers while a thread is inside the driver
    return 0;
  });
  EXPECT_EQ(child.wait(), 7);
}

TEST_F(Processes, ConcurrentFirstClientsShareOneGpuThatEndsAfterThem) {
  std::list<ForkedChild> children;
  for (int i = 0; i < 8; ++i) {
    children.emplace_back([&, i] {
      if (cuInit(0) != CUDA_SUCCESS) return 3;
      shared.pids[i] = gpu_pid();
      ++shared.ready;
      return eventually([&] { return shared.ready == 8; }) ? 0 : 4;
    });
  }
  for (ForkedChild& child : children) EXPECT_EQ(child.wait(), 0);
  for (int i = 1; i < 8; ++i) EXPECT_EQ(shared.pids[i], shared.pids[0]);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(socket_file()); }));
  EXPECT_TRUE(eventually([&] { return kill(shared.pids[0], 0) != 0; }) ||
              gpu_pid() == 0);  // the init process of a container may leave a zombie
  EXPECT_TRUE(sluice::test::files_of_session(session.name()).empty());
}

TEST_F(Processes, VisibleDevicesChangeOrdinalsAndNotUuids) {
  setenv("SLUICE_SIM_DEVICES", "3", 1);
  const auto last_byte = [](int ordinal) {
    CUuuid uuid{};
    cuDeviceGetUuid(&uuid, ordinal);
    return static_cast<int>(uuid.bytes[15]);
  };
  ForkedChild all([&] {
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS) return 100;
    return count * 10 + last_byte(2);
  });
  EXPECT_EQ(all.wait(), 33);
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  ForkedChild some([&] {
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS) return 100;
    return count * 10 + last_byte(0);
  });
  EXPECT_EQ(some.wait(), 23);
  // By UUID, or the start of one, as container runtimes and schedulers write it. An ambiguous one
  // ends the list.
  const std::string start = "GPU-536c7569-6365-2073-696d-756c617465";
  setenv("CUDA_VISIBLE_DEVICES", (start + "03," + start + "01,0").c_str(), 1);
  ForkedChild by_uuid([&] {
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS) return 100;
    return count * 10 + last_byte(0) + last_byte(1);
  });
  EXPECT_EQ(by_uuid.wait(), 34);
  setenv("CUDA_VISIBLE_DEVICES", (start + "02," + start + "0,0").c_str(), 1);
  ForkedChild ambiguous([&] {
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS) return 100;
    return count * 10 + last_byte(0);
  });
  EXPECT_EQ(ambiguous.wait(), 12);
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("SLUICE_SIM_DEVICES");
}

// One kernel at a time, in slices of 2.2 ms with 0.12 ms between them. Every latency measured on
// the simulator depends on this.
TEST_F(Processes, TwoBusyContextsTakeTurns) {
  const auto busy = [&] {
    const Gpu gpu;
    CUstream stream = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    ++shared.ready;
    while (shared.ready < 2) std::this_thread::yield();
    for (int i = 0; i < 40; ++i) gpu.launch(stream, 900'000);
    return cuStreamSynchronize(stream) == CUDA_SUCCESS ? 0 : 3;
  };
  ForkedChild first(busy);
  ForkedChild second(busy);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(socket_file()); }));

  std::map<int, std::uint64_t> last_end;
  std::vector<LoggedWork> switches;
  for (const LoggedWork& line : log()) {
    if (line.kind == "kernel") {
      EXPECT_GE(line.end_ns - line.start_ns, 1'800'000U);
      EXPECT_GE(line.start_ns, last_end[line.pid]);
      last_end[line.pid] = line.end_ns;
    }
    if (line.kind == "switch") switches.push_back(line);
  }
  // 72 ms of work in slices of 2.2 ms. The first and the last slice may be shorter.
  ASSERT_GE(switches.size(), 30U);
  for (std::size_t i = 2; i + 2 < switches.size(); ++i) {
    EXPECT_EQ(switches[i].end_ns - switches[i].start_ns, 240'000U);
    EXPECT_EQ(switches[i + 1].start_ns - switches[i].end_ns, 4'400'000U);
    EXPECT_NE(switches[i].pid, switches[i + 1].pid);
  }
}

// The basis of device gating: with a wait in front of each kernel, no kernel starts while the word
// is closed, however many are queued.
TEST_F(Processes, NoGatedKernelStartsWhileTheGateIsClosed) {
  ForkedChild child([&] {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUdeviceptr gate = 0;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuMemHostRegister(&shared, sizeof shared, 0);
    cuMemHostGetDevicePointer(&gate, &shared.gate, 0);
    for (int i = 0; i < 400; ++i) {
      cuStreamWaitValue64(stream, gate, 0, CU_STREAM_WAIT_VALUE_EQ);
      gpu.launch(stream, 50'000);
      shared.ready = 1;
    }
    return cuStreamSynchronize(stream) == CUDA_SUCCESS ? 0 : 3;
  });
  ASSERT_TRUE(eventually([&] { return shared.ready == 1; }));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> closed;
  for (int i = 0; i < 8; ++i) {
    shared.gate = 1;
    const std::uint64_t from = monotonic_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    closed.emplace_back(from, monotonic_ns());
    shared.gate = 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(child.wait(), 0);
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(socket_file()); }));
  int kernels = 0;
  for (const LoggedWork& line : log()) {
    if (line.kind != "kernel") continue;
    ++kernels;
    for (const auto& [from, to] : closed) EXPECT_FALSE(line.start_ns > from && line.start_ns < to);
  }
  EXPECT_EQ(kernels, 400);
}

}  // namespace
