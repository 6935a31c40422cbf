#include "predictor/train/profile.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <limits>

#include "base/error.hpp"

namespace sluice::predictor {
namespace {

constexpr int kRepeats = 5;

/// The least seconds of one call among a few repeats of `calls` of them.
double seconds_of(bool gpu, int calls, const std::function<void()>& call) {
  const auto wait = [gpu] {
    if (gpu) c10::cuda::getCurrentCUDAStream().synchronize();
  };
  call();
  wait();
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    wait();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, taken.count() / calls);
  }
  return best;
}

void ask_driver(DeviceInfo& info) {
  const auto* properties = at::cuda::getDeviceProperties(0);
  int khz = 0;
  cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
  info.clock_mhz = khz / 1e3;
  info.memory_gb = static_cast<double>(properties->totalGlobalMem) / 1e9;
  info.shared_kb = static_cast<double>(properties->sharedMemPerMultiprocessor) / 1024;
  info.l2_mb = static_cast<double>(properties->l2CacheSize) / (1 << 20);
  // The driver does not say it; shared memory is part of it.
  info.l1_kb = info.shared_kb;
}

/// The L3 cache of the first processor. sysconf() has that of the whole package, of which a virtual
/// machine may have a part only. 0 if Linux does not say it.
double l3_kb() {
  double kb = 0;
  std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kb;  // 32768K
  return kb;
}

void ask_linux(DeviceInfo& info) {
  const auto size = [](int what, double least) {
    return std::max(static_cast<double>(sysconf(what)), least);
  };
  info.memory_gb = size(_SC_PHYS_PAGES, 1) * size(_SC_PAGESIZE, 1) / 1e9;
  info.shared_kb = l3_kb();
  if (info.shared_kb <= 0) info.shared_kb = size(_SC_LEVEL3_CACHE_SIZE, 1 << 20) / 1024;
  info.l2_mb = size(_SC_LEVEL2_CACHE_SIZE, 1 << 18) / (1 << 20);
  info.l1_kb = size(_SC_LEVEL1_DCACHE_SIZE, 1 << 14) / 1024;
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    if (line.starts_with("cpu MHz")) info.clock_mhz = std::stod(line.substr(line.find(':') + 1));
  }
  if (info.clock_mhz <= 0) throw base::RunError("/proc/cpuinfo does not say the clock of the CPU");
}

}  // namespace

DeviceInfo measure_device(const std::string& device, const std::string& name, int threads) {
  at::set_num_threads(threads);
  const bool gpu = device != "cpu" && c10::cuda::device_count() > 0;
  if (device == "cuda" && !gpu) throw base::RunError("--device cuda: LibTorch finds no GPU");
  const auto where = gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  DeviceInfo info{.name = name};
  gpu ? ask_driver(info) : ask_linux(info);
  at::globalContext().setAllowTF32CuBLAS(false);
  const auto options = at::TensorOptions().device(where).dtype(at::kFloat);
  const std::int64_t elements = gpu ? 1 << 28 : 1 << 25;
  const auto from = at::zeros({elements}, options);
  auto to = at::zeros({elements}, options);
  const double copied = 2.0 * static_cast<double>(elements) * sizeof(float);
  info.bandwidth_gbs = copied / seconds_of(gpu, 3, [&] { to.copy_(from); }) / 1e9;
  const std::int64_t side = gpu ? 8192 : 1024;
  const auto matrix = at::ones({side, side}, options);
  auto product = at::zeros({side, side}, options);
  const double flop =
      2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
  info.fp32_tflops = flop / seconds_of(gpu, 2, [&] { at::mm_out(product, matrix, matrix); }) / 1e12;
  auto small = at::zeros({32}, options);
  info.launch_us = seconds_of(gpu, 1000, [&] { small.add_(1); }) * 1e6;
  return info;
}

}  // namespace sluice::predictor
