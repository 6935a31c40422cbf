#include "runner/run/torch_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>

#include "base/child.hpp"
#include "base/error.hpp"
#include "engine/store/model_store.hpp"

namespace sluice::runner {
namespace {

engine::TorchTarget target_of(const base::Gpus& gpus, int device) {
  if (gpus.simulated) return {false, "", SLUICE_TORCH_VERSION};
  return {true, gpus.archs.at(static_cast<std::size_t>(device)), SLUICE_TORCH_VERSION};
}

/// args: MissingModel::export_args(), "models", "export", ...
void export_model(const base::Install& install, const std::vector<std::string>& args) {
  const std::string line = fmt::format("sluice {}", fmt::join(args, " "));
  std::fprintf(stderr, "sluice run: %s\n", line.c_str());
  std::vector<std::string> command{install.program("sluice-" + args.front())};
  command.insert(command.end(), args.begin() + 1, args.end());
  const int exit_code = base::run_to_end(command);
  if (exit_code != 0) throw base::RunError(fmt::format("{} exited with {}", line, exit_code));
}

void check_input(const Model& model, const std::string& where) {
  const std::string& file = model.input_file_path;
  if (file.empty() || file == "synthetic" || std::filesystem::is_regular_file(file)) return;
  throw base::UsageError(
      fmt::format("{}/input_file_path: there is no file {}; use --input FILE for another one, "
                  "or --input synthetic for a generated one",
                  where, file));
}

}  // namespace

void check_torch_models(const RunOptions& options, const Experiment& experiment,
                        const base::Install& install, const base::Gpus& gpus) {
  const engine::ModelStore store = engine::model_store(options.store);
  const engine::TorchTarget target = target_of(gpus, experiment.device_id);
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    const Model& model = experiment.models[i];
    if (model.backend == "recording") continue;
    const std::string where = fmt::format("{}: /models/{}", experiment.file, i);
    check_input(model, where);
    const auto look = [&] {
      return engine::find_stored_model(store, model, target, where + "/model_name");
    };
    try {
      static_cast<void>(look());
    } catch (const engine::MissingModel& missing) {
      if (!options.export_missing) {
        throw base::UsageError(fmt::format("{} (or sluice run --export)", missing.what()));
      }
      export_model(install, missing.export_args());
      static_cast<void>(look());
    }
  }
}

}  // namespace sluice::runner
