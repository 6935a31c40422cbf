#include "engine/train/report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::engine {
namespace {

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }
double gib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1U << 30U); }

}  // namespace

std::string epoch_line(const std::string& name, std::size_t epoch, const EpochCounts& counts,
                       std::size_t batch_size, std::uint64_t took_ns, std::uint64_t most_bytes) {
  const std::size_t batches = std::max<std::size_t>(1, counts.batches);
  return fmt::format(
      "[{} epoch {}] {:.3f}s | batch cnt {} avg {:.1f}ms | try {} kill {} finish {} | batch-size "
      "{} "
      "| micro-batch-size {} | memory {:.2f}Gb | wait_bs_valid {:.3f}s",
      name, epoch, seconds(took_ns), counts.batches, ms(took_ns / batches), counts.tried,
      counts.killed, counts.finished, batch_size, counts.micro_batch_size, gib(most_bytes),
      seconds(counts.waited_ns));
}

std::string adjust_line(const Adjustment& adjustment) {
  return fmt::format(
      "batch {} adjust : bs {} -> {} | {:.1f}ms | {:.1f}ms | gpu_mem {:.2f}Gb -> {:.2f}Gb",
      adjustment.batch, adjustment.before, adjustment.after, ms(adjustment.freed_ns),
      ms(adjustment.waited_ns), gib(adjustment.bytes_before), gib(adjustment.bytes_after));
}

}  // namespace sluice::engine
