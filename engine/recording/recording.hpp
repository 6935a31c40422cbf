#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice::engine {

/// One kernel of a recorded job.
struct RecordedKernel {
  std::uint64_t duration_ns = 0;
  std::int64_t launch_ns = 0;  ///< When it was launched, after the first launch of the job.
  std::uint32_t blocks = 1;    ///< All dimensions of the grid multiplied, at most 2^31-1.
  std::uint32_t threads = 1;   ///< All dimensions of a block multiplied, at most 1024.
  /// The same for kernels of one name, grid and block, and different for others, from 0 on.
  std::uint32_t sort = 0;
};

/// A recorded job: its kernels in launch order.
struct Recording {
  std::string model;
  std::string gpu;  ///< Where it was recorded.
  std::vector<RecordedKernel> kernels;
  std::vector<std::string> names;  ///< By RecordedKernel::sort; several sorts may have one name.
  std::size_t left_out = 0;        ///< Copies and fills, which are not replayed.
  std::uint64_t left_out_ns = 0;   ///< Their time on the GPU, together.
  [[nodiscard]] std::uint64_t kernels_ns() const;
};

/// Reads a trace file: an object with model, gpu, columns (kind, grid, block, duration_ns,
/// launch_ns, and others, of which name is read, in any order) and rows. Throws base::UsageError
/// that names file and place.
[[nodiscard]] Recording read_recording(const std::string& file);

/// Names of the traces in a folder, sorted, without ".json".
[[nodiscard]] std::vector<std::string> recording_names(const std::filesystem::path& store);

}  // namespace sluice::engine
