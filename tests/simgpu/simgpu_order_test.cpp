// In which order the simulated GPU does what it could do at the same time.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/simgpu/gpu.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/gpu_log.hpp"
#include "tests/support/session.hpp"

extern "C" CUresult sluice_simgpu_set_slice(CUdevice device, std::uint64_t us);

namespace {

using sluice::simgpu::test::Gpu;

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMs = 1000 * kUs;

constexpr double kScale = 10;

double simulated_ms_since(std::chrono::steady_clock::time_point start) {
  return sluice::test::ms_since(start) / kScale;
}

struct Kernel {
  std::uint64_t stream = 0;
  double start_ms = 0;  ///< Simulated, since the first kernel of the log began.
};

class Order : public testing::Test {
 protected:
  static CUstream make_stream(int priority = 0) {
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority), CUDA_SUCCESS);
    return stream;
  }

  static std::uint64_t id_of(CUstream stream) {
    unsigned long long id = 0;
    EXPECT_EQ(cuStreamGetId(stream, &id), CUDA_SUCCESS);
    return id;
  }

  /// The kernels of the log in order of their start, once `count` are in it.
  [[nodiscard]] std::vector<Kernel> kernels(std::size_t count) const {
    for (int i = 0; i < 1000; ++i) {
      std::vector<Kernel> found;
      const sluice::test::GpuLog log(log_);
      for (const auto& work : log.all()) {
        if (work.kind == "kernel")
          found.push_back({work.stream, static_cast<double>(work.start_ns)});
      }
      if (found.size() >= count) {
        std::sort(found.begin(), found.end(),
                  [](const Kernel& a, const Kernel& b) { return a.start_ms < b.start_ms; });
        const double zero = found.front().start_ms;
        for (Kernel& kernel : found) kernel.start_ms = (kernel.start_ms - zero) / 1e6 / kScale;
        return found;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the log never had " << count << " kernels";
    return std::vector<Kernel>(count);
  }

  const sluice::test::Session session_{"simgpu"};
  const std::string log_ = session_.log_gpu();
  Gpu gpu_;
};

// Prevents: priorities that are upside down, or do nothing.
TEST_F(Order, OfKernelsThatAreReadyTheOneOfTheHigherPriorityStreamRunsFirst) {
  int least = 0;
  int greatest = 0;
  ASSERT_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  ASSERT_LT(greatest, least) << "lower numbers are greater priorities";
  CUstream busy = make_stream(greatest);
  CUstream low = make_stream(least);
  CUstream high = make_stream(greatest);
  ASSERT_EQ(gpu_.launch(busy, 20 * kMs), CUDA_SUCCESS);
  ASSERT_EQ(gpu_.launch(low, 10 * kUs), CUDA_SUCCESS);
  ASSERT_EQ(gpu_.launch(high, 10 * kUs), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  const std::vector<Kernel> ran = kernels(3);
  EXPECT_EQ(ran[0].stream, id_of(busy));
  EXPECT_EQ(ran[1].stream, id_of(high));
  EXPECT_EQ(ran[2].stream, id_of(low));
}

// Prevents: a kernel that keeps its old place in the queue when it is preempted, so that two
// contexts take turns and the third never runs.
TEST_F(Order, APreemptedKernelQueuesAnewSoThatEveryContextGetsATurn) {
  constexpr double kSliceMs = 2.2;
  const auto start = std::chrono::steady_clock::now();
  std::vector<CUcontext> contexts;
  std::vector<CUstream> streams;
  for (int i = 0; i < 3; ++i) {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction spin = nullptr;
    ASSERT_EQ(cuCtxCreate(&context, nullptr, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&module, sluice::simgpu::test::kModule), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleGetFunction(&spin, module, "sluice_spin"), CUDA_SUCCESS);
    contexts.push_back(context);
    streams.push_back(make_stream());
    std::uint64_t ns = 30 * kMs;
    void* arguments[] = {&ns};
    ASSERT_EQ(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, streams.back(), arguments, nullptr),
              CUDA_SUCCESS);
  }
  const double given_ms = simulated_ms_since(start);
  for (CUcontext context : contexts) {
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
  // Each kernel is 30 ms long. The last one begins after a slice or two of the others.
  EXPECT_LT(kernels(3)[2].start_ms, given_ms + 4 * kSliceMs);
  for (CUcontext context : contexts) cuCtxDestroy(context);
}

/// How long after the begin of a kernel of 30 ms a kernel of another context begins, in simulated
/// ms, and how long the host took to give both. `slice_us`: of both contexts, set before, or while
/// the second kernel waits.
class SliceOf : public Order {
 protected:
  struct Waited {
    double all;
    double given;  ///< Of it, before the second kernel was there.
  };
  Waited waits(std::uint64_t slice_us, bool meanwhile) {
    const std::size_t before = launched_;
    if (!meanwhile) set(slice_us);
    EXPECT_EQ(cuCtxSetCurrent(gpu_.context), CUDA_SUCCESS);
    CUstream first = make_stream();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(gpu_.launch(first, 30 * kMs), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_EQ(cuCtxSetCurrent(other_), CUDA_SUCCESS);
    std::uint64_t ns = 10 * kUs;
    void* arguments[] = {&ns};
    CUstream second = make_stream();
    EXPECT_EQ(cuLaunchKernel(spin_, 1, 1, 1, 1, 1, 1, 0, second, arguments, nullptr), CUDA_SUCCESS);
    if (meanwhile) set(slice_us);
    const double given = simulated_ms_since(start);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(gpu_.context), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    launched_ += 2;
    const std::vector<Kernel> ran = kernels(launched_);
    return {ran[before + 1].start_ms - ran[before].start_ms, given};
  }
  static void set(std::uint64_t us) { EXPECT_EQ(sluice_simgpu_set_slice(0, us), CUDA_SUCCESS); }
  SliceOf() {
    CUmodule module = nullptr;
    EXPECT_EQ(cuCtxCreate(&other_, nullptr, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleLoadData(&module, sluice::simgpu::test::kModule), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&spin_, module, "sluice_spin"), CUDA_SUCCESS);
  }
  ~SliceOf() override { cuCtxDestroy(other_); }

  static constexpr double kSwitchMs = 0.12;
  CUcontext other_ = nullptr;
  CUfunction spin_ = nullptr;
  std::size_t launched_ = 0;
};

// As measured on an H100 and two H200: the GPU stops a kernel at the end of a slice that its
// process has set (docs/reference/slices.md).
TEST_F(SliceOf, AContextEndsAKernelsTurn) {
  EXPECT_GT(waits(0, false).all, 1.5) << "the driver's slice is 2.2 ms";
  const Waited waited = waits(100, false);
  EXPECT_LT(waited.all, waited.given + 0.1 + kSwitchMs + 0.4);
}

TEST_F(SliceOf, AContextMayBeLong) { EXPECT_GT(waits(20'000, false).all, 15); }

TEST_F(SliceOf, AContextIsObeyedInTheMiddleOfAKernel) {
  ASSERT_EQ(sluice_simgpu_set_slice(0, 20'000), CUDA_SUCCESS);
  const Waited waited = waits(100, true);
  EXPECT_LT(waited.all, waited.given + 10);
}

TEST_F(SliceOf, NoDeviceAndNoTimeThereIs) {
  EXPECT_NE(sluice_simgpu_set_slice(1, 100), CUDA_SUCCESS) << "no context";
  EXPECT_NE(sluice_simgpu_set_slice(0, 1'000'001), CUDA_SUCCESS);
}

// Prevents: a context that loses the rest of its slice at each wait that passes at once. Its
// program would then starve next to one without waits. An H100 does not do so: 2.3 us per wait
// (docs/results/programs.md, 2026-11-22).
TEST_F(Order, AContextKeepsItsSliceAcrossAWaitThatPasses) {
  CUdeviceptr word = 0;
  ASSERT_EQ(cuMemAlloc(&word, 8), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8(word, 0, 8), CUDA_SUCCESS);
  CUcontext busy = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  ASSERT_EQ(cuCtxCreate(&busy, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleLoadData(&module, sluice::simgpu::test::kModule), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&spin, module, "sluice_spin"), CUDA_SUCCESS);
  CUstream other = make_stream();
  std::uint64_t ns = 50 * kUs;
  void* arguments[] = {&ns};
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, other, arguments, nullptr), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuCtxSetCurrent(gpu_.context), CUDA_SUCCESS);
  CUstream stream = make_stream();
  constexpr int kKernels = 40;
  for (int i = 0; i < kKernels; ++i) {
    ASSERT_EQ(cuStreamWaitValue64(stream, word, 0, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    ASSERT_EQ(gpu_.launch(stream, 20 * kUs), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(busy), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  std::vector<Kernel> ran = kernels(400 + kKernels);
  const std::uint64_t id = id_of(stream);
  std::erase_if(ran, [&](const Kernel& kernel) { return kernel.stream != id; });
  // 0.9 ms of work fit into one slice. One lost slice each would make it 80 ms and more.
  EXPECT_LT(ran.back().start_ms - ran.front().start_ms, 4.0);
  cuCtxDestroy(busy);
  cuCtxSetCurrent(gpu_.context);
  cuMemFree(word);
}

// Prevents: a waiter that is not woken by the very command it waits for, and notices by its
// timeout.
TEST_F(Order, WhoeverWaitsForTheLastCommandIsWokenByIt) {
  CUstream stream = make_stream();
  ASSERT_EQ(gpu_.launch(stream, kUs), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  const auto start = std::chrono::steady_clock::now();
  constexpr int kTimes = 40;
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_EQ(gpu_.launch(stream, 100 * kUs), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  // A real millisecond each. The timeout of a wait is 100 ms.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(kTimes * 80));
}

// Prevents: a record that completes late and takes the event back from a newer one.
TEST_F(Order, ALateRecordLeavesTheNewerOneOfItsEventAlone) {
  CUevent base = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&base, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  CUstream slow = make_stream();
  CUstream fast = make_stream();
  ASSERT_EQ(cuEventRecord(base, fast), CUDA_SUCCESS);
  ASSERT_EQ(gpu_.launch(slow, 20 * kMs), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, slow), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, fast), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(fast), CUDA_SUCCESS);
  float before = 0;
  ASSERT_EQ(cuEventElapsedTime(&before, base, event), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(slow), CUDA_SUCCESS);
  float after = 0;
  ASSERT_EQ(cuEventElapsedTime(&after, base, event), CUDA_SUCCESS);
  EXPECT_LT(before, 10.0F);
  EXPECT_EQ(after, before);
}

// Prevents: a batch of the greatest size that is refused, or a greater one that is taken.
TEST_F(Order, ABatchHoldsUpTo256Operations) {
  CUstream stream = make_stream();
  CUdeviceptr word = 0;
  ASSERT_EQ(cuMemAlloc(&word, 8), CUDA_SUCCESS);
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = word;
  operation.writeValue.value = 7;
  std::vector<CUstreamBatchMemOpParams> operations(257, operation);
  EXPECT_EQ(cuStreamBatchMemOp(stream, 256, operations.data(), 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamBatchMemOp(stream, 257, operations.data(), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(word), CUDA_SUCCESS);
}

// Prevents: a write of 32 bits in a batch that also changes the word behind.
TEST_F(Order, A32BitWriteInABatchLeavesItsNeighbourAlone) {
  CUstream stream = make_stream();
  CUdeviceptr words = 0;
  ASSERT_EQ(cuMemAlloc(&words, 8), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32(words, 5, 2), CUDA_SUCCESS);
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = words;
  operation.writeValue.value = 7;
  ASSERT_EQ(cuStreamBatchMemOp(stream, 1, &operation, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::array<std::uint32_t, 2> found{};
  ASSERT_EQ(cuMemcpyDtoH(found.data(), words, sizeof(found)), CUDA_SUCCESS);
  EXPECT_EQ(found, (std::array<std::uint32_t, 2>{7, 5}));
  EXPECT_EQ(cuMemFree(words), CUDA_SUCCESS);
}

// Prevents: a stream that is parked indefinitely on memory that its process has unmapped.
TEST_F(Order, AWaitOnMemoryThatIsGonePasses) {
  constexpr std::size_t kPage = 4096;
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_EQ(cuMemHostRegister(page, kPage, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemHostGetDevicePointer(&address, page, 0), CUDA_SUCCESS);
  CUstream stream = make_stream();
  ASSERT_EQ(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  munmap(page, kPage);
  CUresult state = CUDA_ERROR_NOT_READY;
  for (int i = 0; i < 1000 && state == CUDA_ERROR_NOT_READY; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    state = cuStreamQuery(stream);
  }
  EXPECT_EQ(state, CUDA_SUCCESS);
}

}  // namespace
