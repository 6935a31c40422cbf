#pragma once
#include <string>
#include <vector>

/// `sluice opbench compile`: packs of sources to one pack of binaries.
namespace sluice::profiler {

struct CompileOptions {
  std::vector<std::string> packs;
  std::string out;
  std::string arch;      ///< What the packs must be for; empty: what the first one is for.
  std::size_t jobs = 1;  ///< Compile workers.
  double compile_limit_s = 10;
  std::size_t per_task = 0;  ///< The first programs of each task; 0: all.
};

/// What became of programs.
struct CompileCounts {
  std::size_t compiled = 0;
  std::size_t had = 0;       ///< Programs that came with their binary.
  std::size_t failed = 0;    ///< Not compiled.
  std::size_t too_long = 0;  ///< Compiled longer than the limit.
  std::size_t bare = 0;      ///< Programs with neither a source nor a binary.

  [[nodiscard]] std::size_t written() const { return compiled + had; }
};

/// Writes the networks, the tasks and the programs with a binary into options.out, in the order of
/// the packs. A program has its binary in place of its source. Throws base::UsageError for a pack
/// that is damaged, for another target or options.out itself, and if no program has a source or a
/// binary; base::RunError if none compiles. Whatever it throws, options.out is as it was before.
CompileCounts compile_packs(const CompileOptions& options);

}  // namespace sluice::profiler
