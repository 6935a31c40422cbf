#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice::engine {

/// One kernel of a recorded job.
struct RecordedKernel {
  std::uint64_t duration_ns = 0;
  std::int64_t launch_ns = 0;  ///< Launch time after the first launch of the job.
  std::uint32_t blocks = 1;    ///< Product of the grid's dimensions, at most 2^31-1.
  std::uint32_t threads = 1;   ///< Product of the block's dimensions, at most 1024.
  /// Index into Recording::names. Kernels of the same name, grid and block have the same function.
  std::uint32_t function = 0;
};

/// A recorded job: its kernels in launch order.
struct Recording {
  std::string model;
  std::string gpu;  ///< The GPU of the recording.
  std::vector<RecordedKernel> kernels;
  std::vector<std::string>
      names;                 ///< By RecordedKernel::function. Functions may have the same name.
  std::size_t left_out = 0;  ///< Copies and fills, which are not replayed.
  std::uint64_t left_out_ns = 0;  ///< Total GPU time of the copies and fills.
  [[nodiscard]] std::uint64_t kernels_ns() const;
};

/// Reads a recording: a JSON object with model, gpu, columns and rows. The columns kind, grid,
/// block, duration_ns and launch_ns are required, name is optional, and others are ignored. Throws
/// base::UsageError with file and position.
[[nodiscard]] Recording read_recording(const std::string& file);

/// Whether `text` is the path of a recording's file, not the name of an installed recording.
[[nodiscard]] bool is_recording_path(const std::string& text);

/// Names of the recordings in a folder, sorted, without ".json".
[[nodiscard]] std::vector<std::string> recording_names(const std::filesystem::path& store);

}  // namespace sluice::engine
