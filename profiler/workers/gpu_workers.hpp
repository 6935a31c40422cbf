#pragma once
#include <string>
#include <vector>

#include "profiler/packs/pack.hpp"
#include "profiler/workers/worker_pool.hpp"

/// The child processes that compile and measure, and what they are asked.
namespace sluice::profiler {

/// Of WorkerPool: `jobs` times sluice-compile; sluice-measure for each device. The
/// latter throws base::RunError if there is no driver.
[[nodiscard]] std::vector<std::vector<std::string>> compiler_commands(std::size_t jobs);
[[nodiscard]] std::vector<std::vector<std::string>> gpu_commands(const std::vector<int>& devices);

/// The architecture in the TVM target of a pack, such as "cuda -arch=sm_90". Throws
/// base::UsageError for another target.
[[nodiscard]] std::string arch_of(const std::string& pack, const PackHeader& header);

/// Throws base::UsageError if the programs of a pack are for another GPU than `arch`.
void require_arch(const std::string& pack, const PackHeader& header, const std::string& arch);

/// Says on stderr that the end of a pack was dropped.
void report_torn(const std::string& pack);

/// Drops what neither sluice-compile nor sluice-measure reads: the features, and the source of a
/// program with a binary for `arch`. Returns whether it has that binary.
bool keep_what_measures(Program& program, const std::string& arch);

/// What sluice-compile is asked for.
[[nodiscard]] std::string compile_request(const Program& program, const std::string& arch);
/// Takes over the binary of an answer. Returns an empty text, or why there is none. Throws
/// base::RunError if the machine has no NVRTC.
[[nodiscard]] std::string take_binary(Program& program, const std::string& arch,
                                      const std::string& answer);

}  // namespace sluice::profiler
