#include "tests/engine/memory/fake_driver.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>

namespace sluice::test {
namespace {

struct File {
  int fd;
  std::uint64_t bytes;
};

/// What the entries work on. They are plain functions, so there is one.
struct State {
  std::uint64_t capacity = ~0ULL;
  std::string failing;
  bool hold_copies = false;
  std::deque<std::function<void()>> queued;  ///< The work of all streams, in order.
  std::map<std::uint64_t, File> handles;
  std::uint64_t next_handle = 1;
  std::map<CUdeviceptr, std::uint64_t> mapped, reserved, allocated;
  std::map<void*, std::uint64_t> host;
  std::set<void*> objects;
  std::map<CUevent, bool> happened;
  int waits = 0;
  std::uint64_t copied = 0;

  [[nodiscard]] std::uint64_t held() const {
    std::uint64_t bytes = 0;
    for (const auto& [handle, file] : handles) bytes += file.bytes;
    for (const auto& [at, size] : allocated) bytes += size;
    return bytes;
  }
  void run_queued() {
    while (!hold_copies && !queued.empty()) run_one();
  }
  void run_one() {
    const auto work = std::move(queued.front());
    queued.pop_front();
    work();
  }
};

State& state() {
  static State one;
  return one;
}

CUresult result_of(const char* entry) {
  return state().failing == entry ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

template <class Map>
std::uint64_t sum(const Map& map) {
  std::uint64_t bytes = 0;
  for (const auto& [at, size] : map) bytes += size;
  return bytes;
}

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

CUdeviceptr device_address(void* at) { return reinterpret_cast<CUdeviceptr>(at); }

CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t /*alignment*/,
                 CUdeviceptr /*wanted*/, unsigned long long /*flags*/) {
  void* const found = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *at = device_address(found);
  state().reserved[*at] = bytes;
  return CUDA_SUCCESS;
}

CUresult free_address(CUdeviceptr at, std::size_t bytes) {
  state().reserved.erase(at);
  munmap(pointer(at), bytes);
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                const CUmemAllocationProp* /*wanted*/, unsigned long long /*flags*/) {
  if (state().held() + bytes > state().capacity) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = memfd_create("fake-device-memory", MFD_CLOEXEC);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_UNKNOWN;
  *handle = state().next_handle++;
  state().handles[*handle] = {fd, bytes};
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  close(state().handles.at(handle).fd);
  state().handles.erase(handle);
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long /*flags*/) {
  if (result_of("cuMemMap") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
  mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, state().handles.at(handle).fd,
       static_cast<off_t>(offset));
  state().mapped[at] = bytes;
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr at, std::size_t bytes) {
  state().mapped.erase(at);
  mmap(pointer(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* /*access*/,
                    std::size_t /*count*/) {
  if (result_of("cuMemSetAccess") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
  return mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_UNKNOWN;
}

CUresult allocate(CUdeviceptr* at, std::size_t bytes) {
  if (state().held() + bytes > state().capacity) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = device_address(std::calloc(1, bytes));
  state().allocated[*at] = bytes;
  return CUDA_SUCCESS;
}

CUresult free_memory(CUdeviceptr at) {
  state().allocated.erase(at);
  std::free(pointer(at));
  return CUDA_SUCCESS;
}

CUresult allocate_host(void** at, std::size_t bytes, unsigned int /*flags*/) {
  *at = std::calloc(1, bytes);
  state().host[*at] = bytes;
  return CUDA_SUCCESS;
}

CUresult free_host(void* at) {
  state().host.erase(at);
  std::free(at);
  return CUDA_SUCCESS;
}

CUresult copy(CUdeviceptr to, const void* from, std::size_t bytes, CUstream /*stream*/) {
  if (result_of("cuMemcpyHtoDAsync") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
  state().copied += bytes;
  state().queued.emplace_back([=] { std::memcpy(pointer(to), from, bytes); });
  state().run_queued();
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult make(Handle* made, unsigned int /*flags*/) {
  *made = reinterpret_cast<Handle>(new char);
  state().objects.insert(*made);
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult destroy(Handle handle) {
  state().objects.erase(handle);
  delete reinterpret_cast<char*>(handle);
  return CUDA_SUCCESS;
}

CUresult synchronise(CUstream /*stream*/) {
  while (!state().queued.empty()) state().run_one();
  return CUDA_SUCCESS;
}

CUresult record(CUevent event, CUstream /*stream*/) {
  state().happened[event] = false;
  state().queued.emplace_back([=] { state().happened[event] = true; });
  state().run_queued();
  return CUDA_SUCCESS;
}

CUresult query(CUevent event) {
  return state().happened[event] ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult wait_event(CUstream /*stream*/, CUevent event, unsigned int /*flags*/) {
  if (!state().happened[event]) ++state().waits;
  return CUDA_SUCCESS;
}

CUresult find_granularity(std::size_t* bytes, const CUmemAllocationProp* /*wanted*/,
                          CUmemAllocationGranularity_flags /*which*/) {
  *bytes = FakeDriver::kGranularity;
  return CUDA_SUCCESS;
}

engine::MemoryDriver entries() {
  engine::MemoryDriver driver;
  driver.cuInit = [](unsigned int) { return CUDA_SUCCESS; };
  driver.cuDeviceGet = [](CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; };
  driver.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return *context = nullptr, CUDA_SUCCESS;
  };
  driver.cuDevicePrimaryCtxRelease = [](CUdevice) { return CUDA_SUCCESS; };
  driver.cuCtxPushCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver.cuCtxPopCurrent = [](CUcontext*) { return CUDA_SUCCESS; };
  driver.cuMemGetAllocationGranularity = find_granularity;
  driver.cuMemAddressReserve = reserve;
  driver.cuMemAddressFree = free_address;
  driver.cuMemCreate = create;
  driver.cuMemRelease = release;
  driver.cuMemMap = map;
  driver.cuMemUnmap = unmap;
  driver.cuMemSetAccess = set_access;
  driver.cuMemAlloc = allocate;
  driver.cuMemFree = free_memory;
  driver.cuMemHostAlloc = allocate_host;
  driver.cuMemFreeHost = free_host;
  driver.cuMemcpyHtoDAsync = copy;
  driver.cuStreamCreate = make<CUstream>;
  driver.cuStreamDestroy = destroy<CUstream>;
  driver.cuStreamSynchronize = synchronise;
  driver.cuStreamWaitEvent = wait_event;
  driver.cuEventCreate = make<CUevent>;
  driver.cuEventDestroy = destroy<CUevent>;
  driver.cuEventRecord = record;
  driver.cuEventQuery = query;
  driver.cuGetErrorName = [](CUresult, const char** name) {
    return *name = "an error of the fake", CUDA_SUCCESS;
  };
  return driver;
}

}  // namespace

FakeDriver::FakeDriver() : driver_(entries()) {
  state() = State{};
  context_ = std::make_shared<engine::DeviceContext>(driver_, 0);
}

FakeDriver::~FakeDriver() = default;

void FakeDriver::set_capacity(std::uint64_t bytes) { state().capacity = bytes; }
void FakeDriver::fail(const std::string& entry) { state().failing = entry; }
void FakeDriver::hold_copies() { state().hold_copies = true; }
void FakeDriver::let_copies(std::size_t count) {
  // The event of a copy follows it.
  for (std::size_t i = 0; i < 2 * count && !state().queued.empty(); ++i) state().run_one();
}

std::uint64_t FakeDriver::held_bytes() const { return state().held(); }
std::uint64_t FakeDriver::mapped_bytes() const { return sum(state().mapped); }
std::uint64_t FakeDriver::reserved_bytes() const { return sum(state().reserved); }
std::uint64_t FakeDriver::host_bytes() const { return sum(state().host); }
std::uint64_t FakeDriver::copied_bytes() const { return state().copied; }
int FakeDriver::waits() const { return state().waits; }
int FakeDriver::objects() const { return static_cast<int>(state().objects.size()); }

}  // namespace sluice::test
