#include "profiler/measure/loaded_program.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"

namespace sluice::profiler {
namespace {

constexpr unsigned kStaticShared = 48 * 1024;  ///< More has to be asked for.
/// A stream takes about 1000 launches before the host waits, and Sluice may put a wait before each.
constexpr std::size_t kMostLaunches = 256;
constexpr std::uint64_t kTimeoutNs = 5'000'000'000;
constexpr std::uint64_t kQuietLimitNs = 2'000'000'000;
constexpr std::uint64_t kRaiseClocksNs = 20'000'000;
constexpr useconds_t kPollUs = 50;

}  // namespace

LoadedProgram::LoadedProgram(const Program& program, const std::string& cubin,
                             const std::vector<CUdeviceptr>& addresses) {
  CUmodule module = nullptr;
  SLUICE_CUDA(cuModuleLoadData(&module, cubin.data()));
  module_ = engine::CudaModule(module);
  for (const Kernel& kernel : program.kernels) {
    Launch& launch = launches_.emplace_back();
    launch.kernel = kernel;
    SLUICE_CUDA(cuModuleGetFunction(&launch.function, module, kernel.name.c_str()));
    if (kernel.shared > kStaticShared) {
      engine::check_cuda(SLUICE_OPTIONAL(cuFuncSetAttribute)(
                             launch.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             static_cast<int>(kernel.shared)),
                         "cuFuncSetAttribute");
    }
    for (const std::size_t index : kernel.args) {
      if (index >= addresses.size()) {
        throw base::RunError("kernel " + kernel.name + " names buffer " + std::to_string(index) +
                             " of " + std::to_string(addresses.size()));
      }
      launch.arguments.push_back(addresses[index]);
    }
  }
}

void LoadedProgram::launch(CUstream stream) const {
  for (const Launch& launch : launches_) {
    std::vector<void*> arguments;
    for (const CUdeviceptr& address : launch.arguments) {
      arguments.push_back(const_cast<CUdeviceptr*>(&address));
    }
    const Kernel& kernel = launch.kernel;
    SLUICE_CUDA(cuLaunchKernel(launch.function, kernel.grid[0], kernel.grid[1], kernel.grid[2],
                               kernel.block[0], kernel.block[1], kernel.block[2], kernel.shared,
                               stream, arguments.data(), nullptr));
  }
}

int LoadedProgram::attribute(CUfunction_attribute which) const {
  int most = 0;
  for (const Launch& launch : launches_) {
    int value = 0;
    SLUICE_CUDA(cuFuncGetAttribute(&value, which, launch.function));
    most = std::max(most, value);
  }
  return most;
}

RunTimer::RunTimer(const Share& share, Neighbours& neighbours)
    : share_(share),
      neighbours_(neighbours),
      begin_(engine::make_event()),
      end_(engine::make_event()),
      gate_(engine::make_pinned<std::uint64_t>(1)) {
  *gate_ = 0;
}

void RunTimer::wait_for(const engine::CudaEvent& event) {
  std::uint64_t since = base::monotonic_ns();
  CUresult result = cuEventQuery(event.get());
  while (result == CUDA_ERROR_NOT_READY) {
    usleep(kPollUs);
    const std::uint64_t now = base::monotonic_ns();
    // A program that is held has not begun, perhaps.
    if (neighbours_.stamp().active) since = now;
    if (now - since > kTimeoutNs) throw RunTimeout("a run did not end within 5 s");
    result = cuEventQuery(event.get());
  }
  engine::check_cuda(result, "cuEventQuery");
}

void RunTimer::run_once(const LoadedProgram& program) {
  program.launch(share_.stream());
  SLUICE_CUDA(cuEventRecord(end_.get(), share_.stream()));
  wait_for(end_);
}

void RunTimer::raise_clocks(const LoadedProgram& program) {
  const std::uint64_t end = base::monotonic_ns() + kRaiseClocksNs;
  while (base::monotonic_ns() < end) run_once(program);
}

bool RunTimer::stop_queue() {
  ++turn_;
  CUdeviceptr address = 0;
  if (neighbours_.host_waits()) return false;
  if (cuMemHostGetDevicePointer(&address, gate_.get(), 0) != CUDA_SUCCESS) return false;
  return cuStreamWaitValue64(share_.stream(), address, turn_, CU_STREAM_WAIT_VALUE_GEQ) ==
         CUDA_SUCCESS;
}

bool RunTimer::queue(std::initializer_list<Runs> parts) {
  const bool stopped = stop_queue();
  try {
    SLUICE_CUDA(cuEventRecord(begin_.get(), share_.stream()));
    for (const Runs& runs : parts) {
      for (std::size_t i = 0; i < runs.count; ++i) runs.program.launch(share_.stream());
    }
    SLUICE_CUDA(cuEventRecord(end_.get(), share_.stream()));
  } catch (...) {
    if (stopped) let_go();
    throw;
  }
  return stopped;
}

double RunTimer::finish() {
  wait_for(end_);
  float ms = 0;
  SLUICE_CUDA(cuEventElapsedTime(&ms, begin_.get(), end_.get()));
  return static_cast<double>(ms) / 1e3;
}

void RunTimer::run_batch(const LoadedProgram& program, std::size_t runs) {
  for (std::size_t i = 0; i < runs; ++i) program.launch(share_.stream());
  std::swap(begin_, end_);
  SLUICE_CUDA(cuEventRecord(end_.get(), share_.stream()));
  wait_for(begin_);
}

TimedRuns RunTimer::time(const LoadedProgram& program, std::size_t runs) {
  wait_for_quiet();
  const auto before = neighbours_.stamp();
  if (queue({{program, runs}})) let_go();
  const double seconds = finish();
  return {seconds, Neighbours::worked_between(before, neighbours_.stamp())};
}

void RunTimer::wait_for_quiet() {
  const std::uint64_t since = base::monotonic_ns();
  while (neighbours_.stamp().active && base::monotonic_ns() - since < patience_ns_) {
    usleep(kPollUs);
  }
  patience_ns_ -= std::min(patience_ns_, base::monotonic_ns() - since);
}

void RunTimer::begin_patience() { patience_ns_ = kQuietLimitNs; }

MeasuredTimes RunTimer::measure(const LoadedProgram& program) {
  begin_patience();
  const auto timed = [&](std::size_t runs) {
    const TimedRuns result = time(program, runs);
    if (!result.disturbed && result.seconds > kLongestRunS * static_cast<double>(runs)) {
      throw TooSlow("a run takes more than 1 s");
    }
    return result;
  };
  return measure_by_rule(timed, std::max<std::size_t>(1, kMostLaunches / program.kernels()));
}

}  // namespace sluice::profiler
