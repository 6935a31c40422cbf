// sluice-example-train: a training loop without a framework. Its kernels only take time, and its
// memory has no content, but it obeys grants and orders as a real trainer must:
// docs/reference/memory.md. As the allocators of frameworks do, it keeps the memory of a
// micro-batch for the next one, until it is ordered to give it back.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "sluice/sluice.h"
#include "tools/examples/gpu.hpp"

namespace {

using sluice::base::monotonic_ns;
using sluice::tools::Gpu;

struct Options {
  std::uint64_t epochs = 1;
  std::uint64_t batch = 16;
  std::uint64_t steps = 20;
  std::uint64_t item_us = 100;
  std::uint64_t base_mb = 64;
  std::uint64_t item_mb = 4;
  std::string mode;
  bool deaf = false;
};

/// The grant is too small: the micro-batch has to be dropped.
struct NoMemory : std::exception {};

/// Device memory without content.
class Memory {
 public:
  explicit Memory(std::uint64_t bytes) : bytes_(bytes) {
    const CUresult result = cuMemAlloc(&address_, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) throw NoMemory();
    sluice::tools::require(result, "cuMemAlloc");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cuMemFree(address_); }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
  CUdeviceptr address_ = 0;
};

std::uint64_t kind_of(std::uint64_t order) { return order & 0xffU; }

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

class Trainer {
 public:
  explicit Trainer(const Options& options)
      : options_(options), parameters_(options.base_mb << 20U), micro_(options.batch) {
    if (!options.deaf) sluice_memory_fit(options.base_mb << 20U, options.item_mb << 20U);
  }

  void run() {
    for (std::uint64_t epoch = 0; epoch < options_.epochs;) {
      counts_ = {};
      const std::uint64_t begin = monotonic_ns();
      if (!train_epoch()) continue;  // it begins again
      const double took = seconds(monotonic_ns() - begin);
      fmt::print(
          "[Example epoch {}] {:.3f}s | batch cnt {} avg {:.1f}ms | try {} kill {} finish {} | "
          "batch-size {} | micro-batch-size {} | memory {:.2f}Gb | wait_bs_valid {:.3f}s\n",
          epoch, took, options_.steps, took * 1e3 / static_cast<double>(options_.steps),
          counts_.tried, counts_.killed, counts_.finished, options_.batch, micro_,
          static_cast<double>(sluice_memory_held()) / (1U << 30U), seconds(counts_.waited_ns));
      std::fflush(stdout);
      ++epoch;
    }
  }

 private:
  struct Counts {
    std::uint64_t tried = 0, killed = 0, finished = 0, waited_ns = 0;
  };

  /// False: the epoch has to begin again.
  bool train_epoch() {
    for (std::uint64_t step = 0; step < options_.steps; ++step) {
      for (std::uint64_t left = options_.batch; left > 0;) {
        if (!obey(micro_ != 0)) return false;
        micro_ = micro_size();
        if (micro_ == 0) continue;  // obey() waits
        const std::uint64_t items = std::min(left, micro_);
        if (micro_batch(items)) left -= items;
      }
      if (!options_.deaf) sluice_critical(1);
      const bool stepped = launch_and_wait(options_.item_us);
      if (!options_.deaf) sluice_critical(0);
      if (!stepped) --step;  // the whole batch again
    }
    return true;
  }

  /// How many items fit into the grant; 0: none.
  [[nodiscard]] std::uint64_t micro_size() const {
    if (options_.deaf || options_.item_mb == 0) return options_.batch;
    const std::uint64_t grant = sluice_memory_grant();
    const std::uint64_t base = options_.base_mb << 20U;
    if (grant < base) return 0;
    return std::min(options_.batch, (grant - base) / (options_.item_mb << 20U));
  }

  bool micro_batch(std::uint64_t items) {
    ++counts_.tried;
    bool whole = false;
    try {
      have_activations();
      whole = launch_all(items);
      gpu_.wait();  // also for a dropped one: what was accepted uses the memory
    } catch (const NoMemory&) {
    }
    ++(whole ? counts_.finished : counts_.killed);
    return whole;
  }

  /// Those of a micro-batch of this size.
  void have_activations() {
    const auto bytes = std::max<std::uint64_t>(micro_ * options_.item_mb << 20U, 1);
    if (activations_ && activations_->bytes() == bytes) return;
    activations_.reset();  // before there are both
    activations_ = std::make_unique<Memory>(bytes);
  }

  [[nodiscard]] bool launch_all(std::uint64_t items) const {
    for (std::uint64_t item = 0; item < items; ++item) {
      if (gpu_.try_launch(options_.item_us * 1000) != CUDA_SUCCESS) return false;
    }
    return true;
  }

  bool launch_and_wait(std::uint64_t us) {
    const bool launched = gpu_.try_launch(us * 1000) == CUDA_SUCCESS;
    gpu_.wait();
    return launched;
  }

  /// Obeys what is ordered, and waits while there is no memory for one item. False: the epoch has
  /// to begin again.
  bool obey(bool has_memory) {
    if (options_.deaf) return true;
    const std::uint64_t order = sluice_order();
    const bool sleeps =
        kind_of(order) == SLUICE_ORDER_SLEEP || kind_of(order) == SLUICE_ORDER_EPOCH;
    if (order != 0) {
      activations_.reset();  // no kernel uses them: the last micro-batch has been waited for
      sluice_order_done(order);
    }
    if (!sleeps && has_memory) return true;
    const std::uint64_t begin = monotonic_ns();
    constexpr std::uint32_t kRecheckMs = 100;
    while (sluice_wait_resume(kRecheckMs) == 0) {
    }
    counts_.waited_ns += monotonic_ns() - begin;
    return kind_of(order) != SLUICE_ORDER_EPOCH;
  }

  const Options options_;
  const Gpu gpu_;
  const Memory parameters_;
  std::unique_ptr<Memory> activations_;
  std::uint64_t micro_;
  Counts counts_;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--num-epoch", options.epochs, "Epochs")->capture_default_str();
  app.add_option("--batch-size", options.batch, "Items of a step")->capture_default_str();
  app.add_option("--steps-per-epoch", options.steps, "Steps")->capture_default_str();
  app.add_option("--item-us", options.item_us, "GPU time of an item in microseconds")
      ->capture_default_str();
  app.add_option("--base-mb", options.base_mb, "Memory of the parameters")->capture_default_str();
  app.add_option("--item-mb", options.item_mb, "Memory of an item")->capture_default_str();
  app.add_option("--mode", options.mode, "Given by sluice serve; changes nothing");
  app.add_option("--deaf", options.deaf, "1: knows no orders, as an unchanged program");
  app.footer(
      "Example:\n"
      "  mkdir train && cp /usr/libexec/sluice/sluice-example-train train/job\n"
      "  sluice serve --models resnet50_b1 --gpu sim --train-store train -m task-switch-l1 "
      "--allow-control &\n"
      "  sluice hybrid_workload --infer-model resnet50_b1-p --poisson resnet50_b1=5 --train-model "
      "job");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A training loop that obeys grants and orders: its kernels only take time.",
               "sluice-example-train");
  Options options;
  add_options(app, options);
  if (const auto exit_code = sluice::base::parse(app, argc, argv)) return *exit_code;
  return sluice::base::run_program("sluice-example-train", [&] {
    Trainer(options).run();
    return sluice::base::kExitFine;
  });
}
