#include "controller/device_metrics.hpp"

#include <utility>

#include "base/processes.hpp"
#include "shm/slice_answer.hpp"

namespace sluice::controller {
namespace {

using base::MetricsText;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

MetricsText::Labels label_of(const shm::Board& board, int device) {
  return {{"device", device_name(board, static_cast<std::uint8_t>(device))}};
}

/// A device that nobody has tried has no sample.
void write_slice_answers(MetricsText& out, const shm::Board& board) {
  using Kind = shm::SliceAnswer::Kind;
  out.family("sluice_device_slices_obeyed", "gauge",
             "Whether the GPU obeys time slices; no sample: no answer yet.");
  for (std::size_t i = 0; i < board.devices.size(); ++i) {
    const Kind kind = shm::SliceAnswer::unpack(board.slice_answers[i].load()).kind;
    if (board.devices[i].used.load() == 0 || kind == Kind::kNone) continue;
    out.sample(label_of(board, static_cast<int>(i)), kind == Kind::kObeyed ? 1 : 0);
  }
}

/// GPUs without such a process have no samples.
void write_outside(MetricsText& out, const shm::Board& board,
                   const std::vector<shm::OutsideProcess>& outside) {
  std::map<int, std::pair<double, double>> devices;  // processes and bytes
  for (const shm::OutsideProcess& process : outside) {
    auto& [processes, bytes] = devices[process.device];
    processes += 1;
    bytes += static_cast<double>(process.memory_bytes.value_or(0));
  }
  out.family("sluice_outside_processes", "gauge", "Processes that use the GPU without a slot.");
  for (const auto& [device, sums] : devices) out.sample(label_of(board, device), sums.first);
  out.family("sluice_outside_memory_bytes", "gauge", "GPU memory of these processes.");
  for (const auto& [device, sums] : devices) out.sample(label_of(board, device), sums.second);
}

/// GPUs on which no critical client has lived have no samples. One without NVML has none of
/// `busy`.
void write_device_use(MetricsText& out, const shm::Board& board,
                      const std::map<int, DeviceUse>& devices) {
  const auto each = [&](const auto& write) {
    for (const auto& [device, use] : devices) write(label_of(board, device), use);
  };
  out.family("sluice_device_shared_seconds_total", "counter",
             "Time in which a critical client lived on the GPU.");
  each([&](const MetricsText::Labels& of, const DeviceUse& use) {
    out.sample(of, seconds(use.shared_ns));
  });
  out.family("sluice_device_used_seconds_total", "counter",
             "GPU time in that time, an estimate from learned durations.");
  const auto by = [&](std::uint64_t DeviceUse::Part::*what) {
    each([&](MetricsText::Labels of, const DeviceUse& use) {
      of.emplace_back("by", "critical");
      out.sample(of, seconds(use.critical.*what));
      of.back().second = "best_effort";
      out.sample(of, seconds(use.best_effort.*what));
    });
  };
  by(&DeviceUse::Part::ns);
  out.family("sluice_device_unknown_seconds_total", "counter",
             "Part of that time in which it was not known how much GPU time they used.");
  by(&DeviceUse::Part::unknown_ns);
  out.family("sluice_device_idle_before_seconds_total", "counter",
             "GPU time of best effort in which no critical job or step wanted the GPU.");
  each([&](const MetricsText::Labels& of, const DeviceUse& use) {
    out.sample(of, seconds(use.idle_before_ns));
  });
  out.family("sluice_device_seen_seconds_total", "counter",
             "Part of that time in which NVML said how busy the GPU was.");
  each([&](const MetricsText::Labels& of, const DeviceUse& use) {
    if (use.seen_ns != 0) out.sample(of, seconds(use.seen_ns));
  });
  out.family("sluice_device_busy_seconds_total", "counter", "How long the GPU was busy meanwhile.");
  each([&](const MetricsText::Labels& of, const DeviceUse& use) {
    if (use.seen_ns != 0) out.sample(of, seconds(use.busy_ns));
  });
}

}  // namespace

std::string device_name(const shm::Board& board, std::uint8_t index) {
  return index < board.devices.size() ? base::format_uuid(board.devices[index].uuid) : "unknown";
}

void write_devices(MetricsText& out, const shm::Board& board,
                   const std::vector<shm::OutsideProcess>& outside,
                   const std::map<int, DeviceUse>& use) {
  write_outside(out, board, outside);
  write_device_use(out, board, use);
  write_slice_answers(out, board);
}

}  // namespace sluice::controller
