#pragma once
#include <optional>
#include <string>
#include <utility>

namespace sluice::engine {

/// A model to run: which one, how, and on what input.
struct ModelSpec {
  std::string model_name;
  std::string model_weight;
  std::string backend = "recording";  ///< "recording", "torchscript" or "aoti".
  int batch_size = 1;
  bool cuda_graph = false;                    ///< One CUDA graph per job.
  std::string input_file_path;                ///< Empty or "synthetic": from a fixed seed.
  std::optional<std::pair<int, int>> resize;  ///< Height and width of the input, in pixels.
  std::string recording_file;                 ///< Path of the recording that is replayed.
  double host_gap_us = 0;                     ///< Pause between two launches of a recording.
  bool host_gap_from_recording = false;       ///< Recorded pauses instead.
};

}  // namespace sluice::engine
