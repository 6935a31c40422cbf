#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sluice::engine {

/// A model in evenly sized blocks, as `sluice split` measured it: an entry of "splits" in
/// model.json.
struct Split {
  std::size_t blocks = 0;
  std::vector<std::size_t> cuts;  ///< The nodes at which the second and later blocks begin.
  std::size_t batch = 0;
  std::vector<double> ms;  ///< Time of each block.
  double whole_ms = 0;
  std::string gpu;    ///< Such as "sm_90"; "cpu".
  std::string torch;  ///< The LibTorch that ran it.
};

struct FoundSplit {
  Split split;
  /// Measured on another kind of GPU or with another LibTorch: the cuts are usable, but the blocks
  /// may be uneven, and the times do not hold.
  bool stale = false;
};

/// The split of a model into `blocks` blocks. Prefers one that is not stale, then the latest.
/// Throws base::UsageError if model.json is missing or its splits cannot be understood.
[[nodiscard]] std::optional<FoundSplit> find_split(const std::filesystem::path& model_json,
                                                   std::size_t blocks, const std::string& gpu,
                                                   const std::string& torch);

/// The warning about a stale split, in one line.
[[nodiscard]] std::string stale_warning(const std::string& model, const Split& split,
                                        const std::string& gpu, const std::string& torch);

/// Adds the split to model.json, instead of one with the same blocks, batch and GPU. All other
/// keys stay, in their order; a reader sees the old file or the new one. Throws base::RunError if
/// the file cannot be written.
void save_split(const std::filesystem::path& model_json, const Split& split);

}  // namespace sluice::engine
