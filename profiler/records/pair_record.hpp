#pragma once
#include <array>
#include <string>
#include <vector>

#include "profiler/records/record.hpp"

/// Records of two programs that ran at once: JSON lines (docs/reference/opbench.md).
namespace sluice::profiler {

/// What was measured of two programs. Arrays: the first and the second program.
struct PairTimes {
  std::array<double, 2> alone_s{};        ///< Of one run, with nothing else on the GPU.
  std::array<std::size_t, 2> runs{1, 1};  ///< While the other ran, too.
  std::array<double, 2> together_s{};     ///< Of all these runs.
  /// Of all these runs of the first, and then of the second. 0: not measured, because both ran
  /// without a break for the whole time.
  double serial_s = 0;
  double spread = 0;
  bool disturbed = false;
};

struct PairEffect {
  /// Serial time over the time of both at once: above 1, sharing pays.
  double speedup = 0;
  /// Time of a run while the other program runs, over its time alone. Infinite: it got nothing.
  std::array<double, 2> slowdown{};
};

/// Where both begin at once and one ends first, the other runs alone for the rest: only the time
/// until then counts for its slowdown.
[[nodiscard]] PairEffect effect_of(const PairTimes& times);

struct PairSide {
  std::string program;
  std::string task;  ///< Its name.

  friend auto operator<=>(const PairSide&, const PairSide&) = default;
};

struct PairRecord {
  std::string kind;  ///< stream, processes, mps.
  std::string device;
  std::array<PairSide, 2> sides{};
  PairTimes times{};
  MeasureError error = MeasureError::kNone;
};

[[nodiscard]] std::string to_line(const PairRecord& record);
/// Throws base::UsageError if the line is not such a record.
[[nodiscard]] PairRecord pair_record_of(const std::string& line);

struct PairRecords {
  std::vector<PairRecord> records;
  bool torn = false;  ///< The last line had no end and was dropped.
};

/// Empty if there is no file. Throws base::UsageError with file and line.
[[nodiscard]] PairRecords read_pair_records(const std::string& file);

}  // namespace sluice::profiler
