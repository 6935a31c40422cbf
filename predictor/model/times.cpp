#include "predictor/model/times.hpp"

#include <algorithm>
#include <cmath>

namespace sluice::predictor {
namespace {

constexpr double kWarp = 32;
constexpr double kRegistersOfSm = 65536;
constexpr double kMostRegisters = 255;  ///< Of a thread.
constexpr double kWarpsOfSm = 64;
constexpr double kBlocksOfSm = 32;
constexpr double kFmaOfSm = 256;     ///< Flop of a clock: 128 lanes, an FMA each.
constexpr double kL2BytesOfSm = 23;  ///< Of a clock; about 6 TB/s on an H100.
/// NVRTC leaves a loop as it is that would have more statements, and then an array of the thread
/// that the loop indexes is memory. Of 6,198 programs it agrees with the compiler in 94 %.
constexpr double kMostUnrolled = 400;
constexpr double kInstructionCache = 4000;  ///< Statements that fit, roughly.

/// A kernel on a device.
struct Placed {
  double warps_of_block = 1;
  double resident = 1;  ///< Blocks of an SM at once.
  double blocks = 1;    ///< Of the busiest SM.
  double rounds = 1;    ///< Times that it fills up.
  double sms = 1;
  bool in_memory = false;  ///< Its arrays of a thread are not registers.
  double spilled = 0;      ///< Bytes of a thread.
};

double ceil_of(double a, double b) { return std::ceil(a / b); }

double sms_of(const DeviceInfo& device) {
  return std::max(1.0, std::round(device.fp32_tflops * 1e12 / (kFmaOfSm * device.clock_mhz * 1e6)));
}

Placed place(const CountedKernel& kernel, const DeviceInfo& device) {
  const KernelCounts& c = kernel.counts;
  Placed placed;
  placed.sms = sms_of(device);
  placed.warps_of_block = std::max(1.0, ceil_of(kernel.threads, kWarp));
  placed.in_memory = c.unrolled > kMostUnrolled && c.local_bytes > 0;
  const double wanted = 32 + (placed.in_memory ? 0 : c.local_bytes / 4);
  const double registers = std::min(kMostRegisters, wanted);
  placed.spilled = placed.in_memory ? c.local_bytes : 4 * (wanted - registers);
  const double of_block = 8 * ceil_of(registers, 8) * placed.warps_of_block * kWarp;
  placed.resident =
      std::max(1.0, std::floor(std::min({kBlocksOfSm, kRegistersOfSm / of_block,
                                         device.shared_kb * 1024 / (c.shared_bytes + 1024),
                                         kWarpsOfSm / placed.warps_of_block})));
  placed.blocks = std::max(1.0, ceil_of(kernel.blocks, placed.sms));
  placed.rounds = ceil_of(placed.blocks, placed.resident);
  return placed;
}

double instructions(const KernelCounts& c) {
  return c.fma + c.float_ops + c.shared_loads + c.shared_stores + c.global_loads + c.global_stores +
         c.integer_ops + 8 * c.functions + 10 * c.divisions + 8 * c.integer_divisions + c.branches +
         2 * c.shuffles;
}

/// Clocks.
Times clocks_of(const CountedKernel& kernel, const Placed& on) {
  const KernelCounts& c = kernel.counts;
  const double warps = on.blocks * on.warps_of_block;  // of the busiest SM
  const double all_warps = kernel.blocks * on.warps_of_block;
  const double l2 = all_warps * kWarp / (kL2BytesOfSm * on.sms);
  const double steps = instructions(c);
  return {
      warps * steps / 4,
      warps * (c.fma + c.float_ops) / 4,
      warps * (c.shared_load_wavefronts + c.shared_store_wavefronts),
      warps * (c.written_shared_load_wavefronts + c.shared_store_wavefronts),
      warps * (c.global_load_sectors + c.global_store_sectors),
      warps * c.global_load_lines,
      warps * (c.global_loads + c.global_stores + c.shared_loads + c.shared_stores + c.shuffles),
      l2 * (c.global_load_sectors + c.global_store_sectors),
      l2 * (c.written_global_load_sectors + c.global_store_sectors),
      on.rounds * steps,
      on.rounds * c.syncs * (c.global_loads > 0 ? 1 : 0.1),
      on.rounds * (c.global_loads + c.global_stores),
      warps * c.integer_divisions / 4,
      warps * (c.local_loads + c.local_stores) / 4,
      warps * c.integer_ops / 4,
      warps * (c.functions + c.divisions),
      c.hot_text > kInstructionCache ? on.rounds * c.hot_text * c.hot_trips : 0,
      on.in_memory ? warps * c.local_accesses : 0,
      on.spilled > 0 && !on.in_memory ? warps * c.fma / 4 : 0,
      0};
}

/// The kernel that is busy longest.
const CountedKernel& longest(const Program& program, const DeviceInfo& device) {
  return *std::ranges::max_element(program.kernels, {}, [&](const CountedKernel& kernel) {
    double sum = 0;
    for (const double clocks : clocks_of(kernel, place(kernel, device))) sum += clocks;
    return sum;
  });
}

}  // namespace

Times busy_times(const Program& program, const Task& task, const DeviceInfo& device) {
  Times seconds{};
  for (const CountedKernel& kernel : program.kernels) {
    const Times clocks = clocks_of(kernel, place(kernel, device));
    for (std::size_t i = 0; i < kTimes; ++i) seconds[i] += clocks[i] / (device.clock_mhz * 1e6);
  }
  seconds[kMemory] = task.bytes / (device.bandwidth_gbs * 1e9);
  return seconds;
}

std::vector<double> shape_of(const Program& program, const Task& task, const DeviceInfo& device,
                             bool compiled) {
  const CountedKernel& kernel = longest(program, device);
  const Placed on = place(kernel, device);
  const KernelCounts& c = kernel.counts;
  constexpr double kSome = 1e-3;  // where there is none of either
  const auto ratio = [](double a, double b) { return (a + kSome) / (b + kSome); };
  const double resident_warps = std::min(on.resident, on.blocks) * on.warps_of_block;
  std::vector<double> found{kernel.blocks,
                            kernel.threads,
                            on.resident,
                            on.rounds,
                            on.blocks,
                            resident_warps,
                            kernel.blocks / on.sms / on.blocks,
                            kernel.blocks / on.sms / on.resident,
                            ratio(c.global_load_sectors, c.global_loads),
                            ratio(c.global_load_lines, c.global_loads),
                            ratio(c.global_store_sectors, c.global_stores),
                            ratio(c.shared_load_wavefronts, c.shared_loads),
                            ratio(c.shared_store_wavefronts, c.shared_stores),
                            (c.fma + 1) / (c.global_load_sectors + 1),
                            (c.fma + 1) / (c.shared_load_wavefronts + 1),
                            (c.written_shared_loads + 1) / (c.shared_loads + 1),
                            on.in_memory ? 1.0 : 0.0,
                            resident_warps * kWarp * on.spilled + 1,
                            on.spilled / (c.local_bytes + 1),
                            c.local_accesses / (c.fma + 1)};
  for (double& number : found) number = std::log2(kSome + number);
  for (const double number : c.numbers()) found.push_back(std::log2(1 + number));
  found.push_back(static_cast<double>(program.kernels.size()));
  found.push_back(std::log2(1 + task.flop));
  found.push_back(std::log2(1 + task.bytes));
  if (compiled) {
    found.push_back(program.compiled->registers);
    found.push_back(std::log2(1 + program.compiled->spill_bytes));
  }
  return found;
}

}  // namespace sluice::predictor
