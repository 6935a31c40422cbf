#include "runner/run/torch_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>

#include "runner/config_error.hpp"
#include "runner/model_store.hpp"
#include "runner/run/child.hpp"

namespace sluice::runner {
namespace {

TorchTarget target_of(const Gpus& gpus, int device) {
  if (gpus.simulated) return {false, "", SLUICE_TORCH_VERSION};
  return {true, gpus.archs.at(static_cast<std::size_t>(device)), SLUICE_TORCH_VERSION};
}

/// `args` as MissingModel has them: "models", "export", ...
void export_model(const Layout& layout, const std::vector<std::string>& args) {
  const std::string line = fmt::format("sluice {}", fmt::join(args, " "));
  std::fprintf(stderr, "sluice run: %s\n", line.c_str());
  std::vector<std::string> command{layout.program("sluice-" + args.front())};
  command.insert(command.end(), args.begin() + 1, args.end());
  const int exit_code = run_to_end(command);
  if (exit_code != 0) throw RunError(fmt::format("{} exited with {}", line, exit_code));
}

void check_input(const Model& model, const std::string& where) {
  const std::string& file = model.input_file_path;
  if (file.empty() || file == "synthetic" || std::filesystem::is_regular_file(file)) return;
  throw ConfigError(
      fmt::format("{}/input_file_path: there is no file {}; --input FILE names another, "
                  "--input synthetic makes one up",
                  where, file));
}

}  // namespace

void check_torch_models(const RunOptions& options, const Experiment& experiment,
                        const Layout& layout, const Gpus& gpus) {
  const ModelStore store = model_store(options.store);
  const TorchTarget target = target_of(gpus, experiment.device_id);
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    const Model& model = experiment.models[i];
    if (model.backend == "trace") continue;
    const std::string where = fmt::format("{}: /models/{}", experiment.file, i);
    check_input(model, where);
    const auto look = [&] {
      return find_stored_model(store, model, target, where + "/model_name");
    };
    try {
      static_cast<void>(look());
    } catch (const MissingModel& missing) {
      if (!options.export_missing) {
        throw ConfigError(fmt::format("{} (or sluice run --export)", missing.what()));
      }
      export_model(layout, missing.export_args());
      static_cast<void>(look());
    }
  }
}

}  // namespace sluice::runner
