#pragma once
#include <optional>
#include <string>
#include <utility>

namespace sluice::engine {

/// The model to run, how to run it, and its input.
struct ModelSpec {
  std::string model_name;
  std::string model_weight;
  /// "recording", "torchscript" or "aoti"; "training": a TorchScript file for `sluice train`.
  std::string backend = "recording";
  int batch_size = 1;
  bool cuda_graph = false;                    ///< One CUDA graph per job.
  std::string input_file_path;                ///< Empty or "synthetic": made from a fixed seed.
  std::optional<std::pair<int, int>> resize;  ///< Height and width of the input, in pixels.
  std::string recording_file;                 ///< Path of the recording to replay.
  double host_gap_us = 0;                     ///< Pause between two launches of a recording.
  bool host_gap_from_recording = false;       ///< Use the recorded pauses instead.
};

}  // namespace sluice::engine
