#pragma once
#include <map>
#include <string>
#include <vector>

#include "profiler/runs/measure_pack.hpp"

/// `sluice opbench sweep`: how much of a resource an operator needs.
namespace sluice::profiler {

/// The times of one operator.
struct SweepRow {
  std::string task;  ///< Its id.
  std::string name;
  std::map<int, double> seconds;  ///< By amount of the resource: of the fastest program.
};

/// The smallest amount with which the operator is at most 5 % slower than with the best amount.
/// `seconds` is not empty.
[[nodiscard]] int turning_point(const std::map<int, double>& seconds);

struct SweepOptions {
  MeasureOptions measure;
  std::size_t programs = 4;  ///< Of an operator, for each amount of `block`; for `sm` in all.
};

/// The `count` fastest programs of each task on the whole GPU.
[[nodiscard]] std::set<std::string> fastest_programs(const std::vector<Record>& records,
                                                     std::size_t count);
/// Times by the number of SMs, of these programs.
[[nodiscard]] std::vector<SweepRow> rows_by_sms(const std::vector<Record>& records,
                                                const std::set<std::string>& programs);

/// Measures all programs on the whole GPU, and the fastest of each operator on the shares in
/// options.measure.sms. Both go into options.measure.out, and what is there is not measured again.
[[nodiscard]] std::vector<SweepRow> sweep_sms(const SweepOptions& options);

/// Measures programs of each operator for each size of blocks in the packs.
[[nodiscard]] std::vector<SweepRow> sweep_blocks(const SweepOptions& options);

}  // namespace sluice::profiler
