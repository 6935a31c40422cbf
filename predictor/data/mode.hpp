#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "predictor/data/dataset.hpp"

namespace sluice::predictor {

/// Which labels are used, and which of them test: SOURCE[.SPLIT], or SPLIT alone.
///   SOURCE  DEVICE[,DEVICE..][:CHOICE], or CHOICE: of all devices
///   CHOICE  sampleN | list-I-J.. | network-A-B..     N random tasks; task numbers; networks
///           without-A-B..                            the tasks of no such network
///   SPLIT   by_net:test-A-B..                        every task of these networks tests
///           by_device:train-A-B..,test-C-D..
/// Without SPLIT every fifth label, in the order of time, tests. Letters of either case; networks
/// are written with _ for -, because - separates.
struct Mode {
  std::vector<std::string> devices;  ///< None: all.
  std::optional<std::size_t> sample;
  std::vector<std::size_t> list;
  std::vector<std::string> networks;
  std::vector<std::string> without;
  std::vector<std::string> test_networks;
  std::vector<std::string> train_devices;
  std::vector<std::string> test_devices;
  bool operator==(const Mode&) const = default;
};

/// `count` of the numbers below `all` at random, in their order; all of them if there are fewer.
[[nodiscard]] std::vector<std::size_t> choose_random(std::size_t all, std::size_t count,
                                                     std::uint64_t seed);

/// Throws base::UsageError that names the part that is wrong.
[[nodiscard]] Mode parse_mode(const std::string& text);

/// The labels of a mode. `seed` is of the random tasks. Throws base::UsageError if a device, a
/// network or a task is not in the data set, or nothing is left to train or test with.
[[nodiscard]] Fold make_fold(const Dataset& data, const Mode& mode, std::uint64_t seed);

/// For each device of the data set, whether it has one of these names; without names, all. Throws
/// base::UsageError if there is no device of a name.
[[nodiscard]] std::vector<bool> devices_of(const Dataset& data,
                                           const std::vector<std::string>& names);

/// True for "resnet-18" and "ResNet_18".
[[nodiscard]] bool same_network(const std::string& a, const std::string& b);

/// For each task, whether a network with one of these names calls it. Throws base::UsageError if
/// there is no network of a name.
[[nodiscard]] std::vector<bool> tasks_of(const Dataset& data,
                                         const std::vector<std::string>& networks);

}  // namespace sluice::predictor
