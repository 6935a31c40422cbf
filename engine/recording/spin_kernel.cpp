#include "engine/recording/spin_kernel.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/recording/spin_module.hpp"

namespace sluice::engine {
namespace {

/// Duration of an empty kernel, which a spin kernel needs in addition to its spin time. Chosen so
/// that 218 kernels of 0.797 ms in total take 0.797 ms as one graph on an H200 (driver 580,
/// 2026-11, `sluice demo`). With 1000 they took 0.719 ms. The value hardly matters for long
/// kernels.
constexpr std::uint64_t kEmptyKernelNs = 600;

/// The shortest time in us between two events around one kernel. The minimum is used because time
/// slices of other processes can only make the time longer.
template <class Launch>
double shortest_us(CUstream stream, int repeats, Launch launch) {
  const CudaEvent before = make_event();
  const CudaEvent after = make_event();
  float shortest_ms = std::numeric_limits<float>::max();
  for (int i = 0; i < repeats; ++i) {
    SLUICE_CUDA(cuEventRecord(before.get(), stream));
    launch();
    SLUICE_CUDA(cuEventRecord(after.get(), stream));
    SLUICE_CUDA(cuEventSynchronize(after.get()));
    float took_ms = 0;
    SLUICE_CUDA(cuEventElapsedTime(&took_ms, before.get(), after.get()));
    shortest_ms = std::min(shortest_ms, took_ms);
  }
  return static_cast<double>(shortest_ms) * 1e3;
}

}  // namespace

SpinKernel::SpinKernel(const std::vector<std::string>& recorded) {
  const std::vector<std::string> entries = spin_entry_names(recorded);
  CUmodule module = nullptr;
  SLUICE_CUDA(cuModuleLoadData(&module, spin_module(entries).c_str()));
  module_ = CudaModule(module);
  SLUICE_CUDA(cuModuleGetFunction(&unnamed_, module, "sluice_spin"));
  for (const std::string& entry : entries) {
    CUfunction function = nullptr;
    SLUICE_CUDA(cuModuleGetFunction(&function, module, entry.c_str()));
    functions_.push_back(function);
  }
}

void SpinKernel::calibrate(CUstream stream) {
  constexpr std::uint64_t kShortNs = 100'000;
  constexpr std::uint64_t kLongNs = 600'000;
  constexpr int kRepeats = 30;
  cycles_per_us_ = 1000;
  own_ns_ = 0;
  // The clock of an idle GPU is low. Keep the GPU busy until the clock has risen.
  for (int i = 0; i < 100; ++i) launch(unnamed_, stream, 1, 32, kLongNs);
  SLUICE_CUDA(cuStreamSynchronize(stream));
  const auto shortest_of = [&](std::uint64_t ns) {
    return shortest_us(stream, kRepeats, [&] { launch(unnamed_, stream, 1, 32, ns); });
  };
  const double short_us = shortest_of(kShortNs);
  const double long_us = shortest_of(kLongNs);
  // At 1000 cycles per us, both kernels ran for as many cycles as their durations have ns. The
  // launch overhead is the same for both and cancels out.
  const double speed = static_cast<double>(kLongNs - kShortNs) / (long_us - short_us);
  cycles_per_us_ = static_cast<std::uint64_t>(std::clamp(speed, 1.0, 100'000.0) + 0.5);
  own_ns_ = kEmptyKernelNs;
}

void SpinKernel::launch(CUstream stream, std::uint32_t kernel, std::uint32_t blocks,
                        std::uint32_t threads, std::uint64_t duration_ns) {
  launch(functions_.at(kernel), stream, blocks, threads, duration_ns);
}

void SpinKernel::launch(CUfunction function, CUstream stream, std::uint32_t blocks,
                        std::uint32_t threads, std::uint64_t duration_ns) {
  std::uint64_t spin_ns = duration_ns - std::min(duration_ns, own_ns_);
  std::uint64_t cycles = spin_ns * cycles_per_us_ / 1000;
  std::array<void*, 2> arguments{&spin_ns, &cycles};
  SLUICE_CUDA(
      cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.data(), nullptr));
}

}  // namespace sluice::engine
