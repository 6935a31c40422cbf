#include "engine/train/options.hpp"

#include <limits>

#include "base/command_line.hpp"

namespace sluice::engine {
namespace {

void add_training_options(CLI::App& app, TrainOptions& options) {
  base::count_option(app, "--batch-size", options.batch_size, "Items of an optimizer step", 1);
  base::count_option(app, "--micro-batch-size", options.micro_batch_size,
                     "Most items of a micro-batch; 0: the whole batch", 0);
  base::count_option(app, "--num-epoch", options.epochs, "Epochs", 1);
  base::count_option(app, "--steps-per-epoch", options.steps, "Optimizer steps of an epoch", 1);
  app.add_option("--lr", options.lr, "Learning rate")
      ->capture_default_str()
      ->type_name("R")
      ->check(base::number(0, 1e6));
  app.add_option("--optimizer", options.optimizer, "sgd (with momentum 0.9) or adamw")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(base::one_of({"sgd", "adamw"}));
  app.add_option("--seed", options.seed, "Seed of the data and of dropout")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<std::int64_t>::max()));
  app.add_flag("--deterministic", options.deterministic,
               "Compute the same bits on every run on a GPU, more slowly");
}

void add_place_options(CLI::App& app, TrainOptions& options) {
  app.add_option("--store", options.store,
                 "The store of exported models (default: $SLUICE_MODELS, else "
                 "~/.local/share/sluice/models)")
      ->type_name("DIR");
  app.add_option("--device", options.device, "cpu or cuda (default: cuda if there is a GPU)")
      ->type_name("NAME")
      ->check(base::one_of({"cpu", "cuda"}));
  app.add_option("--mode", options.mode,
                 "The mode of the server that starts this training; under task-switch-l2, the\n"
                 "start of each epoch is kept in host memory")
      ->capture_default_str()
      ->type_name("MODE")
      ->check(base::one_of({"normal", "task-switch-l1", "task-switch-l2", "task-switch-l3",
                            "colocate-l1", "colocate-l2", "park"}));
}

void add_checkpoint_options(CLI::App& app, TrainOptions& options) {
  app.add_option("--checkpoint", options.checkpoint,
                 "Write the state of the training to FILE, at the end of each epoch and on SIGINT\n"
                 "and SIGTERM")
      ->type_name("FILE");
  base::count_option(app, "--checkpoint-steps", options.checkpoint_steps,
                     "Also after every N optimizer steps of an epoch; 0: not", 0);
  app.add_flag("--resume", options.resume,
               "Go on from the checkpoint if there is one; the result has the same bits");
}

}  // namespace

std::optional<int> parse_train_options(int argc, char** argv, TrainOptions& options) {
  CLI::App app(
      "Train a PyTorch model of the store on synthetic data. Next to `sluice serve`, the training\n"
      "gives memory back when the server needs it; its optimizer steps stay the same.",
      "sluice train");
  app.set_help_flag("--help", "Print this help");
  app.add_option("model", options.model, "Model of the store, exported with --train")
      ->type_name("MODEL");
  add_training_options(app, options);
  add_place_options(app, options);
  add_checkpoint_options(app, options);
  app.footer(
      "The data are one random batch, which every step trains on.\n\n"
      "Examples:\n"
      "  sluice models export resnet50 --train && sluice train resnet50 --batch-size 64\n"
      "  sluice train bert_base --optimizer adamw --lr 1e-4 --num-epoch 3\n"
      "  sluice train resnet50 --checkpoint resnet50.ckpt --resume\n\n"
      "Exit codes: 0 fine, 1 the training failed, 2 wrong usage, no such model, or no LibTorch.");
  if (const auto exit_code = base::parse(app, argc, argv)) return exit_code;
  if (options.model.empty()) throw base::UsageError("no model; see sluice train --help");
  if (options.checkpoint.empty() && (options.resume || options.checkpoint_steps > 0)) {
    throw base::UsageError(std::string(options.resume ? "--resume" : "--checkpoint-steps") +
                           " needs --checkpoint FILE");
  }
  return std::nullopt;
}

}  // namespace sluice::engine
