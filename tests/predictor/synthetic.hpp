#pragma once
#include <cstdint>
#include <string>

#include "predictor/model/model.hpp"

namespace sluice::test {

/// A device that differs from others only in its peak, in TFLOP/s.
[[nodiscard]] predictor::DeviceInfo made_up_device(const std::string& name, double peak);

/// Programs for a GPU with random counts and a time that follows from these, on two devices:
/// "H200", and "H200@32", where all take three times as long.
struct Synthetic {
  predictor::Dataset data;
  std::vector<predictor::DeviceInfo> devices;

  /// The labels of one device.
  [[nodiscard]] std::vector<predictor::Label> on(std::size_t device) const;
};
[[nodiscard]] Synthetic synthetic(std::size_t tasks, std::size_t programs_of_each,
                                  std::uint64_t seed);

/// MAPE of a model.
[[nodiscard]] double error_of(const predictor::LatencyModel& model, const Synthetic& made,
                              std::span<const predictor::Label> labels);

}  // namespace sluice::test
