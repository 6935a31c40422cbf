#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/simgpu/gpu.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/gpu_log.hpp"
#include "tests/support/session.hpp"

namespace {

using sluice::simgpu::test::Gpu;
using sluice::test::eventually;
using sluice::test::ms_since;
using Clock = std::chrono::steady_clock;

const sluice::test::Session kSession("simgpu");
const std::string kGpuLog = kSession.log_gpu();

class Basics : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override { cuStreamDestroy(stream); }
  Gpu gpu;
  CUstream stream = nullptr;
};

// If a kernel ended early, every latency measured on the simulator would be too good.
TEST_F(Basics, KernelsOfAStreamRunInTurnForTheirDuration) {
  const auto start = Clock::now();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(gpu.launch(stream, 1'000'000), CUDA_SUCCESS);
  const bool ready = cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
  EXPECT_TRUE(!ready || ms_since(start) >= 30.0);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_GE(ms_since(start), 30.0);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
}

// A replayed kernel has its recorded name. It must still last for its duration, and appear in the
// log under its own name.
TEST_F(Basics, KernelsWithTheSpinPrefixKeepTheirDurationAndName) {
  const std::string logged = "sluice_spin_" + std::string(115, 'x');
  const std::string text = std::string(".version 8.0\n.visible .entry ") + logged +
                           "y(.param .u64 ns) { ret; }\n.visible .entry a_sluice_spin() { ret; }\n";
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  CUfunction other = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&spin, module, (logged + "y").c_str()), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&other, module, "a_sluice_spin"), CUDA_SUCCESS);
  std::uint64_t ns = 1'000'000;
  void* arguments[] = {&ns};
  const auto start = Clock::now();
  for (const CUfunction function : {spin, other}) {
    ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
              CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_GE(ms_since(start), 10.0);
  std::map<std::string, double> real_ms;
  // The GPU process writes the log when it is idle.
  EXPECT_TRUE(eventually([&] {
    const sluice::test::GpuLog log(kGpuLog);
    for (const auto& work : log.all()) {
      real_ms[work.name] = static_cast<double>(work.end_ns - work.start_ns) / 1e6;
    }
    return real_ms.count("a_sluice_spin") != 0;
  }));
  EXPECT_NEAR(real_ms[logged], 10.0, 0.001);  // cut to 127 characters
  EXPECT_LT(real_ms["a_sluice_spin"], 1.0);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

// Programs of CUDA 3 set the block and the arguments before the launch, and drivers still take it.
TEST_F(Basics, LaunchesByTheOldCallsRunAsTheNewOnesDo) {
  std::uint64_t ns = 2'000'000;
  CUevent begin = nullptr;
  CUevent end = nullptr;
  ASSERT_EQ(cuEventCreate(&begin, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&end, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuParamSetv(gpu.spin, 0, &ns, sizeof ns), CUDA_ERROR_INVALID_VALUE)
      << "has no size yet";
  EXPECT_EQ(cuFuncSetBlockShape(gpu.spin, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuFuncSetBlockShape(gpu.spin, 32, 1, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuParamSetSize(gpu.spin, sizeof ns), CUDA_SUCCESS);
  ASSERT_EQ(cuParamSetv(gpu.spin, 0, &ns, sizeof ns), CUDA_SUCCESS);
  const auto length_of = [&](CUresult (*launch)(CUfunction)) {
    EXPECT_EQ(cuEventRecord(begin, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(launch(gpu.spin), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(end, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
    float ms = 0;
    EXPECT_EQ(cuEventElapsedTime(&ms, begin, end), CUDA_SUCCESS);
    return ms;
  };
  EXPECT_GE(length_of([](CUfunction f) { return cuLaunch(f); }), 2.0F);
  EXPECT_GE(length_of([](CUfunction f) { return cuLaunchGrid(f, 2, 3); }), 2.0F);
  EXPECT_GE(length_of([](CUfunction f) { return cuLaunchGridAsync(f, 2, 3, nullptr); }), 2.0F);
  EXPECT_EQ(cuLaunchGrid(gpu.spin, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchGrid(nullptr, 1, 1), CUDA_ERROR_INVALID_HANDLE);
  void* arguments[] = {&ns};
  CUDA_LAUNCH_PARAMS kernel{gpu.spin, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments};
  EXPECT_EQ(cuLaunchCooperativeKernelMultiDevice(&kernel, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0), CUDA_ERROR_INVALID_VALUE);
  cuEventDestroy(begin);
  cuEventDestroy(end);
}

TEST_F(Basics, EventsMeasureSimulatedTime) {
  CUevent begin = nullptr;
  CUevent end = nullptr;
  ASSERT_EQ(cuEventCreate(&begin, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&end, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  std::vector<std::uint64_t> words(1024, 1);
  ASSERT_EQ(cuMemHostRegister(words.data(), 8192, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitValue64(stream, reinterpret_cast<CUdeviceptr>(words.data()), 0,
                                CU_STREAM_WAIT_VALUE_EQ),
            CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(begin, stream), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 500'000), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  float ms = 0;
  EXPECT_EQ(cuEventElapsedTime(&ms, begin, end), CUDA_ERROR_NOT_READY);
  __atomic_store_n(words.data(), std::uint64_t{0}, __ATOMIC_RELEASE);
  ASSERT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
  ASSERT_EQ(cuEventElapsedTime(&ms, begin, end), CUDA_SUCCESS);
  EXPECT_NEAR(ms, 0.5, 0.02);  // GPU time, from exact start and end times
  EXPECT_EQ(cuEventDestroy(begin), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(end), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(words.data()), CUDA_SUCCESS);
}

// A wait must read memory that another process writes; otherwise it would never open or never
// close.
TEST_F(Basics, AStreamWaitFollowsRegisteredSharedMemory) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& gate = *static_cast<std::atomic<std::uint64_t>*>(page);
  gate = 1;
  ASSERT_EQ(cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister(page, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemHostGetDevicePointer(&address, page, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitValue64(stream, address, 0, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 1000), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate = 0;
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  munmap(page, 4096);
}

// Prevents: programs that can only read their gates work here and not on a GPU, whose driver
// refuses such memory unless the flag says so; or the GPU process dies writing to it.
TEST_F(Basics, MemoryThatCanOnlyBeReadIsRegisteredForReading) {
  const int file = memfd_create("gate", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  auto& gate = *static_cast<std::atomic<std::uint64_t>*>(page);
  gate = 1;
  void* view = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  EXPECT_EQ(cuMemHostRegister(view, 4096, CU_MEMHOSTREGISTER_PORTABLE), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemHostRegister(view, 4096, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemHostGetDevicePointer(&address, view, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitValue64(stream, address, 0, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate = 0;
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(view), CUDA_SUCCESS);
  munmap(page, 4096);
  munmap(view, 4096);
  close(file);
}

// The GPU process cannot map private memory, but must still read it.
TEST_F(Basics, AStreamWaitFollowsRegisteredPrivateMemory) {
  std::vector<std::uint64_t> words(1024, 1);
  std::uint64_t& gate = words[512];
  ASSERT_EQ(cuMemHostRegister(words.data(), 8192, 0), CUDA_SUCCESS);
  const auto address = reinterpret_cast<CUdeviceptr>(&gate);
  ASSERT_EQ(cuStreamWaitValue64(stream, address, 0, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWriteValue64(stream, address + 8, 5, 0), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  __atomic_store_n(&gate, std::uint64_t{0}, __ATOMIC_RELEASE);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[513], 5U);
  EXPECT_EQ(cuMemHostUnregister(words.data()), CUDA_SUCCESS);
}

// The board of a session is a file. If it is truncated, the GPU process must go on for the other
// clients.
TEST_F(Basics, AFileTruncatedUnderAParkedWaitReadsAsZero) {
  const std::string path = kSession.file("board");
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ftruncate(file, 8192), 0);
  auto* words =
      static_cast<std::uint64_t*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  words[512] = 1;
  ASSERT_EQ(cuMemHostRegister(words, 8192, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitValue64(stream, reinterpret_cast<CUdeviceptr>(words + 512), 0,
                                CU_STREAM_WAIT_VALUE_EQ),
            CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(ftruncate(file, 0), 0);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(words), CUDA_SUCCESS);
  munmap(words, 8192);
  close(file);
}

TEST_F(Basics, EveryKindOfWaitComparesAsDocumented) {
  std::uint64_t* word = nullptr;
  ASSERT_EQ(cuMemAllocHost(reinterpret_cast<void**>(&word), 64), CUDA_SUCCESS);
  const auto at = reinterpret_cast<CUdeviceptr>(word);
  struct Case {
    unsigned flags;
    std::uint64_t holding;
    std::uint64_t failing;
    std::uint64_t value;
  };
  for (const Case& c :
       {Case{CU_STREAM_WAIT_VALUE_EQ, 7, 8, 7}, Case{CU_STREAM_WAIT_VALUE_GEQ, 8, 6, 7},
        Case{CU_STREAM_WAIT_VALUE_AND, 6, 8, 2},
        Case{CU_STREAM_WAIT_VALUE_NOR, 1, ~std::uint64_t{0}, 2}}) {
    *word = c.failing;
    ASSERT_EQ(cuStreamWaitValue64(stream, at, c.value, c.flags), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY) << c.flags;
    __atomic_store_n(word, c.holding, __ATOMIC_RELEASE);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS) << c.flags;
  }
  ASSERT_EQ(cuStreamWriteValue64(stream, at, 42, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(*word, 42U);
  EXPECT_NE(cuStreamWriteValue64(stream, at, 0, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
            CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(word), CUDA_SUCCESS);
}

TEST_F(Basics, CopiesMoveTheBytesInStreamOrder) {
  constexpr std::size_t kBytes = 1 << 20;
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  ASSERT_EQ(cuMemAlloc(&a, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&b, kBytes), CUDA_SUCCESS);
  std::vector<char> in(kBytes, 'x');
  std::vector<char> out(kBytes, 0);
  ASSERT_EQ(cuMemcpyHtoD(a, in.data(), kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(b, a, kBytes, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8Async(b, 'y', 10, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoDAsync(b + 10, "abc", 3, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoHAsync(out.data(), b, kBytes, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::string(out.data(), 14), "yyyyyyyyyyabcx");
  EXPECT_EQ(cuMemcpyHtoD(a + 1, in.data(), kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(a), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(b), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(b), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Basics, BlockingStreamsAndTheLegacyStreamRunInTurn) {
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(blocking, 2'000'000), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(nullptr, 1000), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(CU_STREAM_PER_THREAD, 1000), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
}

TEST_F(Basics, WaitEventOrdersStreams) {
  CUstream other = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);  // never recorded: no wait
  ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
  ASSERT_EQ(gpu.launch(stream, 2'000'000), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(other), CUDA_SUCCESS);
}

// Code that uses a stream's handle as its identity must fail here as on hardware.
TEST_F(Basics, HandlesAreReusedAndStreamIdsAreNot) {
  CUstream first = nullptr;
  CUstream second = nullptr;
  unsigned long long first_id = 0;
  unsigned long long second_id = 0;
  ASSERT_EQ(cuStreamCreate(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetId(first, &first_id), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy(first), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&second, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetId(second, &second_id), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  EXPECT_NE(first_id, second_id);
  ASSERT_EQ(cuStreamDestroy(second), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Basics, ErrorsAreTheDriversOwn) {
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, gpu.module, "missing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetFunction(&function, gpu.module, "other"), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  CUdevice device = 0;
  EXPECT_EQ(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
  CUcontext popped = nullptr;
  EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPushCurrent(popped), CUDA_SUCCESS);
}

}  // namespace
