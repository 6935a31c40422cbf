// A program that takes and gives back device memory. It obeys the lines of stdin and answers each
// with `ok`, with the driver's error, or with numbers. It knows nothing of Sluice.
//   device N          the primary context of that device is the current one from now on
//   alloc WAY BYTES   by plain, async, physical
//   free              what was allocated last
//   race N BYTES      N threads allocate at once: how many got it
//   info              free and total memory, and the total of the device
//   reset             the primary context
//   launch            an empty kernel
//   fork              from now on a child of this process obeys
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr const char* kModule = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry sluice_spin(.param .u64 ns) { ret; }
)";

class Client {
 public:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    std::string way;
    std::size_t number = 0;
    std::size_t bytes = 0;
    words >> word;
    if (word == "fork") return fork_here();
    if (word == "device") {
      words >> number;
      return told(use(static_cast<CUdevice>(number)));
    }
    if (context_ == nullptr && use(0) != CUDA_SUCCESS) return "no device";
    if (word == "alloc") {
      words >> way >> bytes;
      return told(allocate(way, bytes));
    }
    if (word == "race") {
      words >> number >> bytes;
      return race(number, bytes);
    }
    if (word == "free") return told(free_last());
    if (word == "info") return info();
    if (word == "reset") return told(reset());
    return word == "launch" ? told(launch()) : "what?";
  }

 private:
  static std::string told(CUresult result) {
    return result == CUDA_SUCCESS ? "ok" : "error " + std::to_string(static_cast<int>(result));
  }

  CUresult use(CUdevice device) {
    device_ = device;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context_, device);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(context_) : result;
  }

  CUresult allocate(const std::string& way, std::size_t bytes) {
    if (way == "physical") return create(bytes);
    CUdeviceptr at = 0;
    const bool in_stream = way == "async";
    const CUresult result =
        in_stream ? cuMemAllocAsync(&at, bytes, nullptr) : cuMemAlloc(&at, bytes);
    if (result != CUDA_SUCCESS) return result;
    frees_.emplace_back([=] { return in_stream ? cuMemFreeAsync(at, nullptr) : cuMemFree(at); });
    return CUDA_SUCCESS;
  }

  CUresult create(std::size_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    const CUresult result = cuMemCreate(&handle, bytes, &prop, 0);
    if (result == CUDA_SUCCESS) frees_.emplace_back([=] { return cuMemRelease(handle); });
    return result;
  }

  CUresult free_last() {
    const auto free = frees_.back();
    frees_.pop_back();
    const CUresult result = free();
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
  }

  std::string race(std::size_t count, std::size_t bytes) {
    std::atomic<int> got{0};
    std::atomic<std::size_t> ready{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        CUdeviceptr at = 0;
        cuCtxSetCurrent(context_);
        ++ready;
        while (ready < count) std::this_thread::yield();
        if (cuMemAlloc(&at, bytes) == CUDA_SUCCESS) ++got;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return std::to_string(got);
  }

  std::string info() const {
    std::size_t free = 0;
    std::size_t total = 0;
    std::size_t whole = 0;
    const CUresult result = cuMemGetInfo(&free, &total);
    if (result != CUDA_SUCCESS) return told(result);
    cuDeviceTotalMem(&whole, device_);
    return std::to_string(free) + " " + std::to_string(total) + " " + std::to_string(whole);
  }

  CUresult reset() {
    frees_.clear();
    const CUresult result = cuDevicePrimaryCtxReset(device_);
    return result == CUDA_SUCCESS ? use(device_) : result;
  }

  static CUresult launch() {
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    std::uint64_t ns = 1000;
    void* arguments[] = {&ns};
    CUresult result = cuModuleLoadData(&module, kModule);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&kernel, module, "sluice_spin");
    if (result == CUDA_SUCCESS) {
      result = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
    }
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
  }

  /// The parent waits and says no more.
  static std::string fork_here() {
    const pid_t child = fork();
    if (child == 0) return "ok";
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WEXITSTATUS(status));
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::vector<std::function<CUresult()>> frees_;
};

}  // namespace

int main() {
  Client client;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << client.obey(line) << std::endl;
  }
}
