#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The models that a server serves, from a file in the published format.
namespace sluice::server {

/// In place of the index of a GPU.
inline constexpr int kNoGpu = -1;

struct ModelConfig {
  std::string name;             ///< In requests.
  std::string path;             ///< The model of the store, or the name or file of a recording.
  std::string engine = "auto";  ///< auto, torch (TorchScript), aoti, recording or dummy.
  std::string device = "cuda";  ///< cuda, cpu or sim.
  /// The GPUs that have instances, in this order. As read: those that `device` names. Empty: the
  /// one of --device. Once settled: empty on the CPU.
  std::vector<int> gpus{};
  std::size_t batch_size = 1;      ///< Items that one execution takes.
  bool batched = true;             ///< False: batch-size 0, a model without a batch dimension.
  std::size_t num_worker = 1;      ///< Instances on each GPU; PARALLER runs them at the same time.
  double slo_ms = 0;               ///< Deadline of a request after its arrival; 0: none.
  int priority = 1;                ///< 0: best effort inside the server.
  std::uint64_t max_delay_us = 0;  ///< How long a request may wait for a full batch.
  std::uint64_t timeout_us = 0;    ///< A request that waits longer is refused; 0: never.
  std::size_t max_queue = 128;     ///< Waiting requests.
  std::size_t blocks = 0;          ///< 0: whole.
  bool preload = true;             ///< Load at start. Else at the first load request.
  std::uint64_t weights_mb = 0;    ///< Of a recording, which has none of its own. MiB.
  std::uint64_t version = 1;       ///< Of a loaded model.
  std::string versions = "latest:1";  ///< latest:N, all, or numbers: those that are served.
};

/// Whether LibTorch runs the model, which the simulated GPU cannot.
[[nodiscard]] inline bool needs_torch(const ModelConfig& config) {
  return config.engine == "torch" || config.engine == "aoti";
}

/// The devices of a model: its GPUs, or kNoGpu.
[[nodiscard]] inline std::vector<int> gpus_of(const ModelConfig& config) {
  return config.gpus.empty() ? std::vector{kNoGpu} : config.gpus;
}

/// A version of a model.
struct ModelVersion {
  std::uint64_t number = 1;
  std::string path;  ///< As ModelConfig::path.
};

/// Those of `found`, which is in order, that ModelConfig::versions names.
[[nodiscard]] std::vector<ModelVersion> chosen_versions(const std::string& policy,
                                                        std::vector<ModelVersion> found);

/// Whether `name` may name a model.
[[nodiscard]] bool is_model_name(const std::string& name);

/// Reads a config file: a line that is not indented names a model, and indented `key value` lines
/// follow. `name[n]` gives name, name-1, ... name-(n-1). `#` begins a comment. Throws
/// base::UsageError with file and line for anything else.
[[nodiscard]] std::vector<ModelConfig> read_config(const std::string& file);

/// The models of `--models a,b[3],c`, with default settings. Throws base::UsageError.
[[nodiscard]] std::vector<ModelConfig> parse_model_list(const std::string& list);

}  // namespace sluice::server
