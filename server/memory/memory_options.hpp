#pragma once
#include <cstdint>
#include <optional>

#include "base/command_line.hpp"
#include "server/memory/residency.hpp"

namespace sluice::server {

/// The device memory of the server and its training.
struct MemoryOptions {
  bool use_sta = true;  ///< Weights at fixed addresses, and grants; else one allocation a model.
  double pool_gb = 0;   ///< GiB; 0: what is free at the start, less a reserve.
  double cold_cache_gb = -1;  ///< GiB; below 0: a quarter of the pool.
  double max_idle_ms = 3000;
};

void add_memory_options(CLI::App& app, MemoryOptions& options);

/// How the memory is shared out, if `free_bytes` of the device are free. Nothing if that is 0.
/// A model waits for memory for 10 s, and at least 5 s longer than a trainer may take to obey.
[[nodiscard]] std::optional<memory::ResidencyOptions> memory_options(const MemoryOptions& options,
                                                                     std::uint64_t free_bytes,
                                                                     std::uint64_t wedged_ns);

}  // namespace sluice::server
