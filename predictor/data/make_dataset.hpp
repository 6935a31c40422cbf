#pragma once
#include <string>
#include <vector>

#include "predictor/data/dataset.hpp"
#include "profiler/packs/pack.hpp"

namespace sluice::predictor {

/// Records that do not become labels, by reason.
struct Dropped {
  std::size_t failed = 0;      ///< The program did not compile, run, or compute the right result.
  std::size_t disturbed = 0;   ///< Something else ran on the GPU.
  std::size_t uneven = 0;      ///< The longest repeat took 1.2 times the shortest or more.
  std::size_t brief = 0;       ///< Shorter than 1 us.
  std::size_t sourceless = 0;  ///< No pack has its source; that of a program for a CPU is not kept.
  std::size_t unknown = 0;     ///< No pack has the program, or the record names no device.
  std::size_t repeated = 0;  ///< A later record of the same program on the same device replaced it.
};

/// Puts packs and records together. `inputs`: files *.programs and *.jsonl, or folders with them.
/// Throws base::UsageError if an input is neither, cannot be read, or nothing is measured and
/// `need_labels`.
[[nodiscard]] Dataset make_dataset(const std::vector<std::string>& inputs, bool need_labels,
                                   Dropped& dropped);

[[nodiscard]] Task task_of(const profiler::Task& from);

/// A program of task 0. Throws base::UsageError if it has no kernels, or not their source.
[[nodiscard]] Program program_of(const profiler::Program& from);

/// Writes counts.csv, a line for each kernel: what a warp of it does, as ncu counts it too.
void write_counts(const std::string& file, const Dataset& data);

/// Writes tasks.csv: number, id, name, target, flop, bytes, programs, labels, networks.
void write_tasks(const std::string& file, const Dataset& data);

}  // namespace sluice::predictor
