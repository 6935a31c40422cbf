#include "engine/split/options.hpp"

#include <limits>

#include "base/command_line.hpp"

namespace sluice::engine {
namespace {

void add_search_options(CLI::App& app, SplitOptions& options) {
  base::count_option(app, "-p,--population", options.search.population,
                     "Candidates in a generation", 2);
  base::count_option(app, "-r,--generations", options.search.generations, "Generations at most", 1);
  base::count_option(app, "-s,--stall", options.search.stall,
                     "End after N generations without a better candidate", 1);
  app.add_option("--seed", options.search.seed, "Seed of the search")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<std::int64_t>::max()));
  app.add_flag("-e,--early-end", options.early_end,
               "End after a generation whose best candidate is good enough: overhead at most 8 %\n"
               "for each block, deviation at most 3 % of the whole model");
  app.add_option("--measure", options.measured,
                 "Search on summed times of operators, and measure only the N best candidates")
      ->type_name("N")
      ->check(base::whole_number(1, base::kMostCount));
  app.add_option("--operators", options.operators,
                 "With --measure: the op.csv of sluice opbench run --executor torch, for the same\n"
                 "model, batch size and GPU (default: times of one pass)")
      ->type_name("FILE");
  app.add_option("--limit-s", options.limit_s, "End with the best candidate after S seconds")
      ->capture_default_str()
      ->type_name("S")
      ->check(base::number(0.1, 1e6));
}

void add_target_options(CLI::App& app, SplitOptions& options) {
  base::count_option(app, "--batch", options.batch, "Batch size that is measured", 1);
  auto* device = app.add_option("--device", options.device,
                                "Index of the GPU (default: 0, or the CPU if there is none)")
                     ->type_name("N")
                     ->check(base::whole_number(0, std::numeric_limits<std::int8_t>::max()));
  app.add_flag("--cpu", options.cpu, "Measure on the CPU")->excludes(device);
  app.add_option("-t,--threads", options.threads, "Threads of an operator on the CPU")
      ->type_name("N")
      ->check(base::whole_number(1, 1024));
  app.add_option("--store", options.store,
                 "The store of exported models (default: $SLUICE_MODELS, else "
                 "~/.local/share/sluice/models)")
      ->type_name("DIR");
}

void add_output_options(CLI::App& app, SplitOptions& options) {
  app.add_option("--out", options.out, "Folder of the results file and of log/")
      ->capture_default_str()
      ->type_name("DIR");
  app.add_option("-g,--tag", options.tag, "Text that goes into the name of the results file")
      ->type_name("TEXT")
      ->check([](const std::string& text) {
        return text.find('/') == std::string::npos ? "" : "'" + text + "' has a slash";
      });
  app.add_flag("-h,--cache", options.use_cache,
               "Take over what log/split-log.json has of this model, GPU and batch size,\n"
               "instead of measuring it again");
  app.add_flag("--cuts", options.list_cuts,
               "Only say at how many places the model can be cut; --json lists them");
  app.add_flag("--json", options.json, "Print the result as JSON");
}

}  // namespace

std::optional<int> parse_split_options(int argc, char** argv, SplitOptions& options) {
  CLI::App app(
      "Divide a PyTorch model of the store into blocks of even length, between which a server can\n"
      "run another request. The best cuts are written into the model's model.json.",
      "sluice split");
  app.set_help_flag("--help", "Print this help");
  app.add_option("model", options.model, "Model of the store")->type_name("MODEL");
  app.add_option("-c,--blocks", options.blocks, "The number of blocks")
      ->type_name("K")
      ->check(base::whole_number(2, base::kMostCount));
  add_target_options(app, options);
  add_search_options(app, options);
  add_output_options(app, options);
  app.footer(
      "A candidate is measured in blocks, 20 times; fewer times on the CPU if it takes long. "
      "Nodes,\n"
      "candidates and times are in log/split-log.json, each generation in results-MODEL_K.csv.\n\n"
      "Examples:\n"
      "  sluice split resnet50 --cuts\n"
      "  sluice split resnet50 -c 3 --batch 8\n"
      "  sluice split resnet50 -c 3 --measure 8 --operators data/resnet50-b1/op.csv\n"
      "  sluice split vgg19 -c 2 --cpu --early-end --limit-s 60\n\n"
      "Exit codes: 0 fine, 1 the search failed, 2 wrong usage, no such model, or no LibTorch.");
  if (const auto exit_code = base::parse(app, argc, argv)) return exit_code;
  if (options.model.empty()) throw base::UsageError("no model; see sluice split --help");
  if (!options.operators.empty() && !options.measured) {
    throw base::UsageError("--operators needs --measure N: how many candidates are measured");
  }
  if (!options.blocks && !options.list_cuts) {
    throw base::UsageError(
        "the number of blocks is missing: give -c K, or --cuts to list the cuts");
  }
  return std::nullopt;
}

}  // namespace sluice::engine
