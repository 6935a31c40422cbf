#pragma once
#include <cstdint>
#include <string>

#include "shm/mps_word.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"

namespace sluice::intercept {

/// The settings from the environment; docs/reference/environment.md describes the variables.
struct Config {
  std::string session;        ///< SLUICE_SESSION, else base::default_session()
  std::uint8_t priority = 0;  ///< SLUICE_PRIORITY, 0-255
  shm::Policy policy;         ///< SLUICE_POLICY
  shm::Target target;         ///< SLUICE_TARGET
  std::uint32_t slice = 0;    ///< SLUICE_SLICE (shm/slice.hpp)
  std::uint64_t memory = 0;   ///< SLUICE_MEMORY: the limit of device memory; 0: none.
  std::uint32_t weight = 0;   ///< SLUICE_WEIGHT (shm/weight.hpp)
  std::uint32_t give = 0;     ///< SLUICE_GIVE (shm/give.hpp), in 1/1000.
  bool predict = true;        ///< SLUICE_PREDICT
  bool gpu_time = true;       ///< SLUICE_GPU_TIME
  std::string trace;          ///< SLUICE_TRACE: a folder; empty for no trace.
  std::uint64_t trace_limit;  ///< SLUICE_TRACE_LIMIT_MIB, in bytes.
  std::string name;           ///< SLUICE_NAME, else shm::client_name() of this process.
  std::string label;          ///< SLUICE_LABEL, with the Slurm job, the pod and its namespace, and
                              ///< with priority=default if SLUICE_PRIORITY has no priority.
  shm::MpsWord mps;           ///< If it is one of an MPS daemon: CUDA_MPS_PIPE_DIRECTORY says
                              ///< which, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE how wide.
  std::string waits;          ///< SLUICE_WAITS: a folder; empty: waits are not counted.
};

/// Reads the SLUICE_* variables. Replaces a value that cannot be read by its default and reports it
/// on one line: a program must run, whatever its environment says. The default of no variable takes
/// more than the variable can: a memory limit that cannot be read is the least limit, not none.
Config read_config();

/// SLUICE_MEMORY alone, without a line about a value that cannot be read; 0: no limit.
[[nodiscard]] std::uint64_t memory_limit_of_environment() noexcept;

}  // namespace sluice::intercept
