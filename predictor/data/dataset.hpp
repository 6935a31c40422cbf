#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

/// What the predictors learn from: tensor programs, and the time of each on one or several devices.
namespace sluice::predictor {

/// Features of a store statement, as in packs.
inline constexpr std::size_t kStoreFeatures = 164;
/// How the program is launched, see launch_features(). All its leaves have the same.
inline constexpr std::size_t kLaunchFeatures = 12;
inline constexpr std::size_t kFeatures = kStoreFeatures + kLaunchFeatures;

using Leaf = std::array<float, kFeatures>;

/// What a prediction needs of a profiler::Task.
struct Task {
  std::string id{};
  std::string name{};          ///< Such as "fused_conv2d_add_relu".
  std::string target{};        ///< Such as "cuda -arch=sm_90".
  std::string workload_key{};  ///< Its shapes, as text.
  double flop = 0;
  double bytes = 0;  ///< Of its inputs and outputs.
};

/// What a prediction needs of a profiler::Program.
struct Program {
  std::string id{};
  std::size_t task = 0;
  std::int64_t index = 0;  ///< In the config space of the task.
  std::vector<Leaf> leaves{};
  std::vector<std::int32_t> positions{};  ///< Of each leaf, in the pre-order walk of the tree.
};

/// A program on a device.
struct Query {
  std::size_t program = 0;
  std::size_t device = 0;
  bool operator==(const Query&) const = default;
};

/// A measured program.
struct Label {
  Query query;
  double seconds = 0;
};

/// What a prediction needs of a profiler::Network.
struct Network {
  struct Call {
    std::size_t task = 0;
    std::vector<std::size_t> after{};  ///< Earlier calls whose output it reads.
  };
  std::string name{};
  std::string target{};
  std::int64_t batch = 1;
  std::vector<Call> calls{};  ///< In the order of execution.
};

struct Dataset {
  std::vector<std::string> devices{};
  std::vector<Task> tasks{};
  std::vector<Network> networks{};
  std::vector<Program> programs{};
  std::vector<Label> labels{};

  /// The most leaves of a program; 0 without programs.
  [[nodiscard]] std::size_t most_leaves() const;
  [[nodiscard]] const Task& task_of(const Query& query) const;
  /// The device with this name, in any case of letters. Throws base::UsageError with the known
  /// ones.
  [[nodiscard]] std::size_t device(const std::string& name) const;
};

/// Labels that a predictor is trained and tested with.
struct Fold {
  std::vector<Label> train{};
  std::vector<Label> tune{};  ///< Few, of the device or network that is to be predicted.
  std::vector<Label> test{};
};

[[nodiscard]] std::vector<Query> queries_of(std::span<const Label> labels);

/// The numbers of `labels` by task, in the order of tasks.
[[nodiscard]] std::map<std::size_t, std::vector<std::size_t>> by_task(
    const Dataset& data, std::span<const Query> queries);

}  // namespace sluice::predictor
