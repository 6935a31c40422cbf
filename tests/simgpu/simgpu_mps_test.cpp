// Processes under MPS on one simulated GPU, with sluice-simgpu-mps-control as their daemon. The
// test process makes no driver call: its children make them, each after its fork.
#include <signal.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "base/processes.hpp"
#include "base/session.hpp"
#include "tests/simgpu/gpu.hpp"
#include "tests/simgpu/gpu_socket.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/gpu_log.hpp"
#include "tests/support/process.hpp"
#include "tests/support/session.hpp"
#include "tests/support/shared.hpp"

extern "C" CUresult sluice_simgpu_set_slice(CUdevice device, std::uint64_t us);

namespace {

using sluice::simgpu::test::Gpu;
using sluice::test::eventually;
using sluice::test::ForkedChild;
using sluice::test::kProgramPatience;
using sluice::test::LoggedWork;
using sluice::test::Process;

constexpr const char* kPipes = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kShare = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
constexpr std::uint64_t kForever = 60'000'000'000;
constexpr int kWithoutMps = 1000;  // added to a count of multiprocessors

struct Words {
  std::atomic<int> ready;
  std::atomic<bool> go;
};

class Mps : public ::testing::Test {
 protected:
  Mps() { setenv("SLUICE_SIM_SCALE", "2", 1); }
  ~Mps() override {
    for (const char* name : {kPipes, kShare, "SLUICE_SIM_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
      unsetenv(name);
    }
  }

  [[nodiscard]] std::string pipes() const { return session.file("pipes"); }
  [[nodiscard]] std::string socket_file() const {
    return sluice::base::runtime_dir() + "/" + session.name() + ".simgpu";
  }
  [[nodiscard]] bool has_daemon() const {
    return std::filesystem::exists(pipes() + "/nvidia-cuda-mps-control.pid");
  }

  // Starts a daemon, and makes later children its clients.
  void start_daemon(std::vector<std::string> environment = {}) {
    environment.push_back(std::string(kPipes) + "=" + pipes());
    daemon.emplace(std::vector<std::string>{SLUICE_SIMGPU_MPS_CONTROL, "-f"},
                   sluice::test::ProcessOptions{.environment = environment});
    ASSERT_TRUE(eventually([this] { return has_daemon(); }, kProgramPatience));
    setenv(kPipes, pipes().c_str(), 1);
  }

  // What a new process is told: its multiprocessors, and kWithoutMps without MPS.
  static int told() {
    ForkedChild child([] {
      std::array<int, 2> found{-1, -1};
      if (cuInit(0) != CUDA_SUCCESS) return -1;
      cuDeviceGetAttribute(&found[0], CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
      cuDeviceGetAttribute(&found[1], CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0);
      // An exit code has eight bits.
      return found[0] / 2 + (found[1] == 0 ? 128 : 0);
    });
    const int code = child.wait(kProgramPatience);
    return code < 128 ? 2 * code : 2 * (code - 128) + kWithoutMps;
  }
  static int told_with_share(const char* share) {
    setenv(kShare, share, 1);
    const int found = told();
    unsetenv(kShare);
    return found;
  }

  // Runs a kernel of 60 s until something ends it, and returns whether all later calls return what
  // ended it.
  int run_until(CUresult expected) {
    const Gpu gpu;
    if (gpu.launch(nullptr, kForever) != CUDA_SUCCESS) return 3;
    ++shared.ready;
    if (cuCtxSynchronize() != expected) return 4;
    CUdeviceptr memory = 0;
    if (cuMemAlloc(&memory, 64) != expected) return 5;
    const int result = gpu.launch(nullptr, 1) == expected ? 0 : 6;
    ++shared.ready;
    (void)eventually([this] { return shared.go.load(); }, kProgramPatience);
    return result;
  }

  static CUresult launch_fault(CUstream stream) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    cuModuleLoadData(&module,
                     ".version 8.0\n.target sm_90\n.visible .entry sluice_fault() { ret; }\n");
    cuModuleGetFunction(&function, module, "sluice_fault");
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }

  static int fault() {
    const Gpu gpu;
    if (launch_fault(nullptr) != CUDA_SUCCESS) return 3;
    if (cuCtxSynchronize() != CUDA_ERROR_ILLEGAL_ADDRESS) return 4;
    return cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 5;
  }

  bool wait_for(int ready) {
    return eventually([&] { return shared.ready >= ready; }, kProgramPatience);
  }

  const sluice::test::Session session{"simgpu"};
  const std::string gpu_log = session.log_gpu();
  const sluice::test::Shared<Words> page;
  Words& shared = *page;
  std::optional<Process> daemon;
};

TEST_F(Mps, AClientIsToldOfItsShare) {
  EXPECT_EQ(told(), 132 + kWithoutMps);
  start_daemon();
  EXPECT_EQ(told(), 132);
  EXPECT_EQ(told_with_share("50"), 66);
  EXPECT_EQ(told_with_share("25"), 34) << "33 is half a TPC more than 32";
  EXPECT_EQ(told_with_share("12.5"), 18);
  EXPECT_EQ(told_with_share("0.1"), 2);
  for (const char* wrong : {"0", "-1", "101", "half", ""}) {
    EXPECT_EQ(told_with_share(wrong), 132) << wrong;
  }
}

TEST_F(Mps, TheDaemonsShareIsAllThatAClientMayHave) {
  start_daemon({std::string(kShare) + "=50"});
  EXPECT_EQ(told(), 66);
  EXPECT_EQ(told_with_share("100"), 66);
  EXPECT_EQ(told_with_share("25"), 34);
}

TEST_F(Mps, WithoutALiveDaemonAProgramRunsAsWithoutMps) {
  setenv(kPipes, pipes().c_str(), 1);
  EXPECT_EQ(told_with_share("50"), 132 + kWithoutMps);
  start_daemon();
  EXPECT_EQ(told_with_share("50"), 66);
  daemon->signal(SIGKILL);
  daemon->wait();
  ASSERT_TRUE(has_daemon()) << "a killed daemon leaves its files";
  EXPECT_EQ(told_with_share("50"), 132 + kWithoutMps);
}

// Prevents: a daemon that counts as alive until its parent asks for its exit code.
TEST_F(Mps, ADaemonThatNobodyHasWaitedForIsNotAlive) {
  std::filesystem::create_directory(pipes());
  setenv(kPipes, pipes().c_str(), 1);
  ForkedChild zombie([] { return 0; });
  ASSERT_TRUE(eventually([&] {
    std::ifstream stat("/proc/" + std::to_string(zombie.pid()) + "/stat");
    return std::string(std::istreambuf_iterator<char>(stat), {}).find(") Z") != std::string::npos;
  }));
  std::ofstream(pipes() + "/control") << "";
  std::ofstream(pipes() + "/nvidia-cuda-mps-control.pid") << zombie.pid() << '\n';
  EXPECT_EQ(told(), 132 + kWithoutMps);
  std::ofstream(pipes() + "/nvidia-cuda-mps-control.pid") << getpid() << '\n';
  EXPECT_EQ(told(), 132) << "any living process will do";
}

TEST_F(Mps, AClientCountsTheDevicesThatTheDaemonSees) {
  setenv("SLUICE_SIM_DEVICES", "3", 1);
  start_daemon({"CUDA_VISIBLE_DEVICES=2,1"});
  const auto device_0 = [] {
    ForkedChild child([] {
      CUuuid uuid{};
      if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetUuid(&uuid, 0) != CUDA_SUCCESS) return 100;
      return static_cast<int>(uuid.bytes[15]);
    });
    return child.wait(kProgramPatience);
  };
  EXPECT_EQ(device_0(), 3);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(device_0(), 2);
  setenv("CUDA_VISIBLE_DEVICES", "2", 1);
  EXPECT_EQ(device_0(), 100) << "the daemon has two";
}

TEST_F(Mps, KernelsOfTwoClientsRunAtOnceAndThoseOfAnotherProcessDoNot) {
  const auto busy = [&] {
    const Gpu gpu;
    ++shared.ready;
    while (shared.ready < 3) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) gpu.launch(nullptr, 900'000);
    return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 3;
  };
  ForkedChild alone(busy);
  start_daemon();
  setenv(kShare, "50", 1);
  ForkedChild first(busy);
  ForkedChild second(busy);
  for (ForkedChild* child : {&alone, &first, &second}) EXPECT_EQ(child->wait(kProgramPatience), 0);
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(socket_file()); }));

  std::map<pid_t, std::vector<LoggedWork>> kernels;
  const sluice::test::GpuLog log(gpu_log);
  for (const LoggedWork& line : log.all()) {
    if (line.kind == "kernel") kernels[line.pid].push_back(line);
  }
  const auto overlaps = [&](pid_t a, pid_t b) {
    int count = 0;
    for (const LoggedWork& one : kernels[a]) {
      for (const LoggedWork& other : kernels[b]) {
        count += one.start_ns < other.end_ns && other.start_ns < one.end_ns ? 1 : 0;
      }
    }
    return count;
  };
  EXPECT_GE(overlaps(first.pid(), second.pid()), 20);
  for (const LoggedWork& kernel : kernels[first.pid()]) {
    EXPECT_GE(kernel.end_ns - kernel.start_ns, 2 * 2 * 895'000U) << "half of the GPU";
  }
  EXPECT_EQ(kernels[alone.pid()].size(), 20U);
}

struct Shape {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
  double slower;  ///< with half of the multiprocessors
};

// An H200 has 132 multiprocessors, each for 64 warps, 32 blocks and 228 KiB of shared memory.
TEST_F(Mps, AKernelIsSlowerWithHalfTheGpuIfItsGridFillsMore) {
  const std::vector<Shape> shapes{
      {{1, 1, 1}, {1, 1, 1}, 0, 2},  // one block that spins stands for all sizes
      {{2, 1, 1}, {1, 1, 1}, 0, 1},  //
      {{99, 2, 1}, {1024, 1, 1}, 0, 1.5},
      {{11, 2, 9}, {32, 16, 2}, 0, 1.5},
      {{132, 1, 1}, {1024, 1, 1}, 0, 1},
      {{99, 4, 2}, {33 * 7, 1, 1}, 0, 1.5},
      {{99, 32, 1}, {32, 1, 1}, 0, 1.5},
      {{99, 1, 1}, {32, 1, 1}, 120 << 10U, 1.5},
      {{99, 2, 1}, {32, 1, 1}, 112 << 10U, 1.5},
      {{1000, 1000, 1}, {1024, 1, 1}, 0, 2},
  };
  start_daemon();
  setenv(kShare, "50", 1);
  ForkedChild child([&] {
    const Gpu gpu;
    for (const auto& [grid, block, bytes, slower] : shapes) {
      std::uint64_t ns = 1'000'000;
      void* arguments[] = {&ns};
      const CUresult launched =
          cuLaunchKernel(gpu.spin, grid[0], grid[1], grid[2], block[0], block[1], block[2], bytes,
                         nullptr, arguments, nullptr);
      if (launched != CUDA_SUCCESS) return 3;
    }
    return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 4;
  });
  EXPECT_EQ(child.wait(kProgramPatience), 0);
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(socket_file()); }));
  const sluice::test::GpuLog log(gpu_log);
  std::vector<LoggedWork> kernels = log.all();
  std::erase_if(kernels, [](const LoggedWork& line) { return line.kind != "kernel"; });
  ASSERT_EQ(kernels.size(), shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const double took = static_cast<double>(kernels[i].end_ns - kernels[i].start_ns) / 2;
    EXPECT_NEAR(took / 1e6, shapes[i].slower, 0.01) << i;
  }
}

// Prevents: a GPU process that whoever looks for the clients of a daemon takes for one.
TEST_F(Mps, TheGpuProcessIsNoClient) {
  start_daemon();
  ASSERT_EQ(told(), 132);
  const pid_t gpu = sluice::simgpu::test::pid_behind(socket_file());
  ASSERT_GT(gpu, 0);
  const std::string environment = sluice::base::read_proc(gpu, "environ", 1U << 20U);
  EXPECT_NE(environment.find("SLUICE_SESSION="), std::string::npos);
  EXPECT_EQ(environment.find("CUDA_MPS_"), std::string::npos);
}

TEST_F(Mps, AClientHasNoSlicesOfItsOwn) {
  start_daemon();
  ForkedChild child([] {
    const Gpu gpu;
    return sluice_simgpu_set_slice(0, 100) == CUDA_ERROR_NOT_SUPPORTED ? 0 : 1;
  });
  EXPECT_EQ(child.wait(kProgramPatience), 0);
}

// Measured on an H200: an illegal address of one client ends the kernels of the others.
TEST_F(Mps, AFaultOfOneClientIsTheErrorOfAll) {
  ForkedChild outside([&] {
    const Gpu gpu;
    ++shared.ready;
    if (!eventually([&] { return shared.go.load(); }, kProgramPatience)) return 3;
    gpu.launch(nullptr, 1000);
    return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 4;
  });
  start_daemon();
  setenv(kShare, "50", 1);  // leaves room for the kernel that faults
  ForkedChild victim([&] { return run_until(CUDA_ERROR_ILLEGAL_ADDRESS); });
  unsetenv(kShare);
  ASSERT_TRUE(wait_for(2));
  EXPECT_EQ(ForkedChild([] { return fault(); }).wait(kProgramPatience), 0);
  ASSERT_TRUE(wait_for(3)) << "the victim hangs";
  EXPECT_EQ(ForkedChild([] {
              return cuInit(0) == CUDA_ERROR_MPS_SERVER_NOT_READY ? 0 : 1;
            }).wait(kProgramPatience),
            0);
  shared.go = true;
  EXPECT_EQ(victim.wait(kProgramPatience), 0);
  EXPECT_EQ(outside.wait(kProgramPatience), 0);
  EXPECT_TRUE(eventually([&] { return told() == 132; }, kProgramPatience))
      << "the server takes no clients though the faulted ones are gone";
}

TEST_F(Mps, WithoutMpsAFaultIsTheErrorOfItsProcess) {
  ForkedChild other([&] {
    const Gpu gpu;
    ++shared.ready;
    if (!eventually([&] { return shared.go.load(); }, kProgramPatience)) return 3;
    gpu.launch(nullptr, 1000);
    return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 4;
  });
  ASSERT_TRUE(wait_for(1));
  // A synchronise that returned the completion of the faulty kernel did so one time in five.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ForkedChild([] { return fault(); }).wait(kProgramPatience), 0);
  }
  shared.go = true;
  EXPECT_EQ(other.wait(kProgramPatience), 0);
}

TEST_F(Mps, AFaultInACaptureIsThatOfTheGraphsLaunch) {
  ForkedChild child([] {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (launch_fault(stream) != CUDA_SUCCESS) return 3;
    if (cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) return 4;
    if (cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS) return 5;
    if (cuCtxSynchronize() != CUDA_SUCCESS) return 6;
    if (cuGraphLaunch(exec, stream) != CUDA_SUCCESS) return 7;
    return cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 8;
  });
  EXPECT_EQ(child.wait(kProgramPatience), 0);
}

TEST_F(Mps, AKilledClientDisturbsNoOtherClient) {
  start_daemon();
  ForkedChild killed([&] { return run_until(CUDA_SUCCESS); });
  ASSERT_TRUE(wait_for(1));
  ForkedChild other([&] {
    const Gpu gpu;
    ++shared.ready;
    gpu.launch(nullptr, 1000);
    return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 4;
  });
  ASSERT_TRUE(wait_for(2));
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_EQ(other.wait(kProgramPatience), 0);
}

TEST_F(Mps, WhenTheDaemonEndsItsClientsCallsFailAndNoneHangs) {
  start_daemon();
  ForkedChild client([&] { return run_until(CUDA_ERROR_MPS_RPC_FAILURE); });
  ASSERT_TRUE(wait_for(1));
  daemon->signal(SIGTERM);
  EXPECT_EQ(daemon->wait(), 0);
  EXPECT_FALSE(has_daemon());
  ASSERT_TRUE(wait_for(2)) << "the client hangs";
  start_daemon();
  EXPECT_EQ(told(), 132) << "the next daemon has clients of its own";
  shared.go = true;
  EXPECT_EQ(client.wait(kProgramPatience), 0);
}

TEST_F(Mps, AFolderHasOneDaemon) {
  start_daemon();
  const auto second = Process({SLUICE_SIMGPU_MPS_CONTROL, "-f"}).finish();
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_NE(second.err.find("An instance of this daemon is already running"), std::string::npos);
  EXPECT_EQ(told(), 132) << "the second one has harmed the first";
}

TEST_F(Mps, TheDaemonTakesCommands) {
  start_daemon({std::string(kShare) + "=40"});
  const auto command = [](const std::string& line) {
    Process process({SLUICE_SIMGPU_MPS_CONTROL});
    process.write_line(line);
    return process.finish();
  };
  EXPECT_EQ(command("get_default_active_thread_percentage").out, "40\n");
  EXPECT_EQ(command("quit").exit_code, 0);
  EXPECT_FALSE(has_daemon());
  EXPECT_EQ(daemon->wait(), 0);
  const auto late = command("quit");
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_NE(late.err.find("Cannot find MPS control daemon process"), std::string::npos);
}

}  // namespace
