#include "server/memory/memory_options.hpp"

#include <algorithm>

namespace sluice::server {
namespace {

/// Memory that nobody counts: the libraries of the server, and the context and the libraries of a
/// training process (docs/results/memory.md).
constexpr std::uint64_t kReserveBytes = 1ULL << 30;

/// For the end of a wedged trainer's process, and the load of the model.
constexpr std::uint64_t kAfterWedgedNs = 5'000'000'000;

std::uint64_t gib(double count) { return static_cast<std::uint64_t>(count * (1ULL << 30)); }

}  // namespace

void add_memory_options(CLI::App& app, MemoryOptions& options) {
  constexpr double kMostGb = 1024;
  app.add_option("--cuda-memory-pool-gb", options.pool_gb,
                 "Device memory of the server and its training, in GiB; models whose weights do "
                 "not fit wait outside (default: what is free at the start, less a reserve)")
      ->type_name("GB")
      ->check(base::number(0.001, kMostGb));
  app.add_option("--cold-cache-gb", options.cold_cache_gb,
                 "So much of idle models stays on the device although training could use the "
                 "memory (default: a quarter of the pool)")
      ->type_name("GB")
      ->check(base::number(0, kMostGb));
  app.add_option("--infer-model-max-idle-ms", options.max_idle_ms,
                 "Idle models beyond the cold cache leave the device after this time; 0: only "
                 "when others need the memory")
      ->capture_default_str()
      ->type_name("MS")
      ->check(base::number(0, 1e9));
  app.add_option("--use-sta", options.use_sta,
                 "1: weights come back to the same addresses, so CUDA graphs stay valid, and "
                 "training is granted memory. 0: one allocation a model, no graphs, no grants "
                 "(docs/reference/server-memory.md)")
      ->capture_default_str()
      ->type_name("0|1")
      ->check(base::one_of({"0", "1"}));
}

std::optional<memory::ResidencyOptions> memory_options(const MemoryOptions& options,
                                                       std::uint64_t free_bytes,
                                                       std::uint64_t wedged_ns) {
  if (free_bytes == 0) return std::nullopt;
  memory::ResidencyOptions out;
  memory::BrokerOptions& broker = out.broker;
  broker.pool_bytes =
      options.pool_gb > 0 ? gib(options.pool_gb) : free_bytes - std::min(free_bytes, kReserveBytes);
  broker.cold_cache_bytes =
      options.cold_cache_gb >= 0 ? gib(options.cold_cache_gb) : broker.pool_bytes / 4;
  out.wedged_ns = wedged_ns;
  // A trainer is ordered after a model has begun to wait, so with equal limits the model would be
  // refused just before the trainer is ended for it.
  broker.give_up_ns = std::max(broker.give_up_ns, wedged_ns + kAfterWedgedNs);
  broker.max_idle_ns = static_cast<std::uint64_t>(options.max_idle_ms * 1e6);
  return out;
}

}  // namespace sluice::server
