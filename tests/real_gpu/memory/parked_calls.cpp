// parked_calls (R4): which calls about memory block while a stream is parked behind a wait, with
// few launches behind it and with a full launch queue? Times them in this process and in another
// one. A watchdog opens the wait, so nothing blocks for longer than kLimit.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/real_gpu/graphs/kernels.hpp"
#include "tests/real_gpu/memory/finding.hpp"

namespace sluice::memory {
namespace {

using graphs::Call;
using graphs::Kernel;
using graphs::Step;
using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Time = steady_clock::time_point;

constexpr auto kLimit = milliseconds(700);
constexpr std::size_t kBytes = std::size_t{64} << 20U;

double us_since(Time begin) {
  return duration<double, std::micro>(steady_clock::now() - begin).count();
}

CUmemAllocationProp pages() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return properties;
}

/// What the calls work on. Nothing of it is used by the parked stream.
struct Memory {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle page = 0;
  CUdeviceptr plain = 0;
  CUdeviceptr kept = 0;  // Mapped or allocated before the stream is parked, for the other stream.
  void* host = nullptr;
  CUstream other = nullptr;
  CUevent event = nullptr;
};

struct NamedCall {
  const char* name;
  std::function<CUresult()> call;
};

/// In this order: each call needs the ones before it.
std::vector<NamedCall> calls(Memory& m) {
  return {
      {"cuMemAddressReserve", [&] { return cuMemAddressReserve(&m.address, kBytes, 0, 0, 0); }},
      {"cuMemCreate",
       [&] {
         const CUmemAllocationProp properties = pages();
         return cuMemCreate(&m.page, kBytes, &properties, 0);
       }},
      {"cuMemMap", [&] { return cuMemMap(m.address, kBytes, 0, m.page, 0); }},
      {"cuMemSetAccess",
       [&] {
         CUmemAccessDesc access{};
         access.location = pages().location;
         access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
         return cuMemSetAccess(m.address, kBytes, &access, 1);
       }},
      {"cuMemsetD8Async on another stream",
       [&] { return cuMemsetD8Async(m.address, 1, kBytes, m.other); }},
      {"cuMemcpyHtoDAsync on another stream",
       [&] { return cuMemcpyHtoDAsync(m.address, m.host, 4096, m.other); }},
      {"cuEventRecord on another stream", [&] { return cuEventRecord(m.event, m.other); }},
      {"cuStreamSynchronize of another stream", [&] { return cuStreamSynchronize(m.other); }},
      {"cuMemGetInfo",
       [] {
         std::size_t free_bytes = 0;
         std::size_t total = 0;
         return cuMemGetInfo(&free_bytes, &total);
       }},
      {"cuMemUnmap", [&] { return cuMemUnmap(m.address, kBytes); }},
      {"cuMemRelease", [&] { return cuMemRelease(m.page); }},
      {"cuMemAddressFree", [&] { return cuMemAddressFree(m.address, kBytes); }},
      {"cuMemAlloc", [&] { return cuMemAlloc(&m.plain, kBytes); }},
      {"cuMemFree", [&] { return cuMemFree(m.plain); }},
  };
}

void prepare(Memory& m) {
  SLUICE_MUST(cuStreamCreate(&m.other, CU_STREAM_NON_BLOCKING));
  SLUICE_MUST(cuEventCreate(&m.event, CU_EVENT_DISABLE_TIMING));
  SLUICE_MUST(cuMemHostAlloc(&m.host, 4096, 0));
  std::memset(m.host, 0, 4096);
}

/// A stream behind a wait, and a thread that launches on it.
class Parked {
 public:
  /// `launches` of them; -1: until a launch blocks.
  explicit Parked(int launches) {
    SLUICE_MUST(cuMemHostAlloc(&word_, sizeof(std::uint64_t), CU_MEMHOSTALLOC_DEVICEMAP));
    SLUICE_MUST(cuMemHostGetDevicePointer(&device_word_, word_, 0));
    SLUICE_MUST(cuMemAlloc(&x_, graphs::kWords * sizeof(std::uint32_t)));
    SLUICE_MUST(cuCtxGetCurrent(&context_));
    stream_ = graphs::new_stream();
    close();
    launcher_ = std::thread([this, launches] { launch(launches); });
    while (!queue_is_ready(launches)) std::this_thread::sleep_for(milliseconds(1));
  }
  Parked(const Parked&) = delete;
  Parked& operator=(const Parked&) = delete;
  ~Parked() {
    stop_ = true;
    open();
    launcher_.join();
    cuStreamSynchronize(stream_);
    cuMemFree(x_);
    cuMemFreeHost(word_);
  }

  void open() { __atomic_store_n(static_cast<std::uint64_t*>(word_), 1, __ATOMIC_RELEASE); }
  [[nodiscard]] int launched() const { return launched_; }

 private:
  void close() {
    std::memset(word_, 0, sizeof(std::uint64_t));
    SLUICE_MUST(cuStreamWaitValue64(stream_, device_word_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }

  void launch(int launches) {
    cuCtxSetCurrent(context_);
    Call call(Step{Kernel::kShort, x_, 1, 0});
    for (int i = 0; i != launches && !stop_; ++i) {
      if (call.launch(stream_) != CUDA_SUCCESS) break;
      ++launched_;
    }
    done_ = true;
  }

  /// The queue is full once no launch has returned for 100 ms.
  bool queue_is_ready(int launches) {
    if (launches >= 0) return done_;
    const int before = launched_;
    std::this_thread::sleep_for(milliseconds(100));
    return before > 0 && launched_ == before;
  }

  void* word_ = nullptr;
  CUdeviceptr device_word_ = 0;
  CUdeviceptr x_ = 0;
  CUcontext context_ = nullptr;
  graphs::Stream stream_;
  std::thread launcher_;
  std::atomic<int> launched_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
};

/// Opens the wait after kLimit, unless it ends before.
class Watchdog {
 public:
  explicit Watchdog(Parked& parked)
      : thread_([this, &parked] {
          const Time until = steady_clock::now() + kLimit;
          while (!ended_ && steady_clock::now() < until) {
            std::this_thread::sleep_for(milliseconds(1));
          }
          if (ended_) return;
          opened_ = true;
          parked.open();
        }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { end(); }
  /// Returns whether the wait had to be opened.
  bool end() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    return opened_;
  }

 private:
  std::atomic<bool> ended_{false};
  std::atomic<bool> opened_{false};
  std::thread thread_;
};

void time_call(const NamedCall& named, const char* where, Parked* parked) {
  bool blocked = false;
  // Before the call: once the wait is open, more launches follow.
  const double queued = parked == nullptr ? 0 : parked->launched();
  Time begin = steady_clock::now();
  CUresult result = CUDA_SUCCESS;
  double us = 0;
  if (parked != nullptr) {
    Watchdog watchdog(*parked);
    begin = steady_clock::now();
    result = named.call();
    us = us_since(begin);
    blocked = watchdog.end();
  } else {
    result = named.call();
    us = us_since(begin);
  }
  Finding finding("R4", named.name);
  finding.with("where", where).with("us", us).with("result", graphs::name_of(result));
  if (parked != nullptr) finding.with("blocked", blocked).with("queued", queued);
}

/// Each call meets a stream that was parked anew, since a call that blocks opens the wait.
void in_this_process(const char* where, int launches) {
  Memory m;
  prepare(m);
  for (const NamedCall& named : calls(m)) {
    Parked parked(launches);
    time_call(named, where, &parked);
  }
}

void alone(const char* where) {
  Memory m;
  prepare(m);
  for (const NamedCall& named : calls(m)) time_call(named, where, nullptr);
}

/// The child: times the calls once the parent has parked its stream.
void in_the_child(int go) {
  char byte = 0;
  if (read(go, &byte, 1) != 1) return;
  alone("next to a parked process");
}

pid_t start_child(const char* program, int go_read, int ready_write) {
  const pid_t child = fork();
  if (child != 0) return child;
  const std::string go = std::to_string(go_read);
  const std::string ready = std::to_string(ready_write);
  execl(program, program, "--child", go.c_str(), ready.c_str(), nullptr);
  _exit(127);
}

void next_to_a_child(pid_t child, int go, int ready) {
  char byte = 0;
  if (read(ready, &byte, 1) != 1) throw graphs::Failure("the child did not start");
  bool opened = false;
  {
    Parked parked(-1);
    Watchdog watchdog(parked);
    if (write(go, &byte, 1) != 1) throw graphs::Failure("the child is gone");
    int status = 0;
    waitpid(child, &status, 0);
    opened = watchdog.end();
  }
  Finding("R4", "the other process waited for the parked one").with("blocked", opened);
}

}  // namespace

int run(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--child") == 0) {
    graphs::enter_device();
    if (write(std::stoi(argv[3]), "r", 1) != 1) return 1;
    in_the_child(std::stoi(argv[2]));
    return 0;
  }
  int go[2];
  int ready[2];
  if (pipe(go) != 0 || pipe(ready) != 0) return 1;
  fcntl(go[1], F_SETFD, FD_CLOEXEC);
  fcntl(ready[0], F_SETFD, FD_CLOEXEC);
  // Before this process has a context, which a fork must not copy.
  const pid_t child = start_child(argv[0], go[0], ready[1]);
  close(go[0]);
  close(ready[1]);
  graphs::enter_device();
  graphs::load_kernels();
  alone("nothing parked");
  next_to_a_child(child, go[1], ready[0]);
  in_this_process("10 launches parked", 10);
  in_this_process("queue full", -1);
  return 0;
}

}  // namespace sluice::memory

int main(int argc, char** argv) {
  try {
    return sluice::memory::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parked_calls: %s\n", error.what());
    return 1;
  }
}
