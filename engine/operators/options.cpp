#include "engine/operators/options.hpp"

#include "base/command_line.hpp"

namespace sluice::engine {

std::optional<int> parse_operator_options(int argc, char** argv, OperatorOptions& options) {
  CLI::App app("Measure each operator of a PyTorch model of the store.",
               "sluice opbench run --executor torch");
  app.add_option("--modelname", options.model, "Model of the store")
      ->type_name("MODEL")
      ->required();
  base::count_option(app, "--batchsize", options.batch, "Batch size", 1, 4096);
  app.add_option("--device", options.gpu, "Index of the GPU; without it, the CPU")
      ->type_name("N")
      ->check(base::whole_number(0, 1000));
  app.add_option("--threads", options.threads, "Threads of an operator on the CPU")
      ->capture_default_str()
      ->check(base::whole_number(1, 1024));
  base::count_option(app, "--repeats", options.repeats, "Batches that are measured", 1, 10'000);
  app.add_option("--store", options.store, "The store of exported models")->type_name("DIR");
  app.add_option("--out", options.out, "op.csv goes into DIR/MODEL-bBATCH/")
      ->capture_default_str()
      ->type_name("DIR");
  return base::parse(app, argc, argv);
}

}  // namespace sluice::engine
