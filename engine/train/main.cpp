// `sluice train`: trains a model of the store next to a server.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "base/signal_fd.hpp"
#include "engine/torch/served_torch.hpp"
#include "engine/torch/train/training.hpp"
#include "engine/train/checkpoint.hpp"
#include "engine/train/micro_batches.hpp"
#include "engine/train/options.hpp"
#include "engine/train/report.hpp"

namespace sluice::engine {
namespace {

/// SIGINT or SIGTERM has come while the training waited.
struct Interrupted {
  int signal = 0;
};

TrainingOptions training_options(const TrainOptions& options) {
  ModelSpec model;
  model.model_name = options.model;
  model.backend = "training";
  const bool gpu = options.device == "cuda" || (options.device.empty() && torch_gpus() > 0);
  return {.model = find_stored_model(model_store(options.store), model,
                                     TorchTarget{gpu, "", SLUICE_TORCH_VERSION}, options.model),
          .gpu = gpu ? std::optional(0) : std::nullopt,
          .batch = options.batch_size,
          .optimizer = options.optimizer == "sgd" ? OptimizerKind::kSgd : OptimizerKind::kAdamW,
          .lr = options.lr,
          .seed = options.seed,
          .deterministic = options.deterministic};
}

/// A server reads the lines as they come.
void print(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

class Run {
 public:
  Run(const TrainOptions& options, const base::SignalFd& signals)
      : options_(options),
        signals_(signals),
        training_(training_options(options)),
        micro_batches_(training_, micro_batch_options()) {
    if (options.resume) read_checkpoint();
  }

  /// Returns the exit code.
  int work() {
    try {
      while (progress_.epoch < options_.epochs) run_epoch();
    } catch (const Interrupted& interrupted) {
      // In a wait, which is inside a batch: the checkpoint of the last step remains.
      return interrupted_by(interrupted.signal);
    }
    print_end();
    return base::kExitFine;
  }

 private:
  MicroBatches::Options micro_batch_options() {
    return {
        .batch = options_.batch_size,
        .largest = options_.micro_batch_size > 0 ? options_.micro_batch_size : options_.batch_size,
        .restores_epochs = options_.mode == "task-switch-l2",
        .on_wait = [this] { throw_if_interrupted(); },
        .on_lack =
            [](std::uint64_t grant, std::uint64_t held) {
              constexpr double kGiB = 1U << 30U;
              fmt::print(stderr,
                         "sluice train: waits for memory for one item: {:.2f} GiB granted, {:.2f} "
                         "held; see sluice status\n",
                         static_cast<double>(grant) / kGiB, static_cast<double>(held) / kGiB);
            },
        .on_sleep =
            [] {
              fmt::print(stderr,
                         "sluice train: sleeps, because inference needs the GPU; see sluice "
                         "status\n");
            },
        .on_adjust = [](const Adjustment& adjustment) { print(adjust_line(adjustment)); }};
  }

  void run_epoch() {
    std::string start;
    if (options_.mode == "task-switch-l2") start = state();
    try {
      while (progress_.step < options_.steps) run_step();
    } catch (const EpochDropped&) {
      std::istringstream in(start);
      progress_ = training_.read_state(in);
      print(fmt::format("epoch {} dropped", progress_.epoch));
      return;
    }
    const std::uint64_t now = base::monotonic_ns();
    print(epoch_line(options_.model, progress_.epoch, micro_batches_.take_counts(),
                     options_.batch_size, now - begin_ns_, micro_batches_.most_bytes()));
    begin_ns_ = now;
    progress_ = {progress_.epoch + 1, 0};
    write_checkpoint();
  }

  void run_step() {
    micro_batches_.run_batch();
    micro_batches_.obey_pending();
    training_.step();
    ++progress_.step;
    if (!first_loss_) first_loss_ = training_.loss();
    const std::size_t every = options_.checkpoint_steps;
    if (every > 0 && progress_.step % every == 0) write_checkpoint();
    if (const int signal = signals_.next().signal; signal != 0) {
      write_checkpoint();
      throw Interrupted{signal};
    }
    micro_batches_.obey_pending();
  }

  void throw_if_interrupted() const {
    if (const int signal = signals_.next().signal; signal != 0) throw Interrupted{signal};
  }

  [[nodiscard]] int interrupted_by(int signal) const {
    std::fputs("sluice train: interrupted", stderr);
    if (!options_.checkpoint.empty()) {
      fmt::print(stderr, "; --resume goes on from {}", options_.checkpoint);
    }
    std::fputs("\n", stderr);
    return 128 + signal;
  }

  [[nodiscard]] std::string state() const {
    std::ostringstream out;
    training_.write_state(out, progress_);
    return std::move(out).str();
  }

  void write_checkpoint() const {
    if (options_.checkpoint.empty()) return;
    replace_file(options_.checkpoint,
                 [this](std::ostream& out) { training_.write_state(out, progress_); });
  }

  void read_checkpoint() {
    std::ifstream in(options_.checkpoint, std::ios::binary);
    if (!in) return;  // the first run
    try {
      progress_ = training_.read_state(in);
    } catch (const base::RunError& error) {
      throw base::RunError(fmt::format("{} cannot be resumed from: {}; remove it, or name another",
                                       options_.checkpoint, error.what()));
    }
  }

  void print_end() const {
    const std::string losses =
        first_loss_ ? fmt::format(", loss {:.4f} -> {:.4f}", *first_loss_, training_.loss()) : "";
    print(fmt::format("trained {}: {} epochs of {} steps{}, parameters {}", options_.model,
                      options_.epochs, options_.steps, losses, training_.digest()));
  }

  const TrainOptions& options_;
  const base::SignalFd& signals_;
  Training training_;
  MicroBatches micro_batches_;
  Progress progress_;
  std::uint64_t begin_ns_ = base::monotonic_ns();  ///< Of the epoch, also if it was dropped since.
  std::optional<double> first_loss_;
};

int work(int argc, char** argv) {
  TrainOptions options;
  if (const auto exit_code = parse_train_options(argc, argv, options)) return *exit_code;
  // Before LibTorch has threads, which would take the signals.
  const base::SignalFd signals({SIGINT, SIGTERM});
  // cuBLAS reads it when it is loaded.
  if (options.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  return Run(options, signals).work();
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice train",
                                   [&] { return sluice::engine::work(argc, argv); });
}
