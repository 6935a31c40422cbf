#pragma once
#include <string>
#include <vector>

#include "profiler/pack.hpp"
#include "profiler/worker_pool.hpp"

/// The child processes that compile and measure, and what they are asked.
namespace sluice::profiler {

/// Of WorkerPool: `jobs` times sluice-compile; sluice-measure for each device.
[[nodiscard]] std::vector<std::vector<std::string>> compiler_commands(std::size_t jobs);
[[nodiscard]] std::vector<std::vector<std::string>> gpu_commands(const std::vector<int>& devices);

/// The architecture in a TVM target such as "cuda -arch=sm_90". Throws base::UsageError, with the
/// name of the pack, for another target.
[[nodiscard]] std::string arch_of(const std::string& pack, const std::string& target);

/// Throws base::UsageError if the programs of a pack are for another GPU than `arch`.
void require_arch(const std::string& pack, const PackHeader& header, const std::string& arch);

/// What sluice-compile is asked for.
[[nodiscard]] std::string compile_request(const Program& program, const std::string& arch);
/// Takes over the binary of an answer. Returns an empty text, or why there is none. Throws
/// base::RunError if the machine has no NVRTC.
[[nodiscard]] std::string take_binary(Program& program, const std::string& arch,
                                      const std::string& answer);

}  // namespace sluice::profiler
