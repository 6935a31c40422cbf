#include "runner/run/output_folders.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "runner/job_log.hpp"
#include "runner/run/models_pid.hpp"

namespace sluice::runner {
namespace {

namespace fs = std::filesystem;

void prove_writable(const std::string& where, const std::string& path) {
  const base::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() >= 0) return;
  throw base::UsageError(
      fmt::format("{}: {} cannot be written: {}", where, path, std::strerror(errno)));
}

}  // namespace

void prepare_output(const Experiment& experiment) {
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    const Model& model = experiment.models[i];
    const std::string where = fmt::format("{}: /models/{}/output_file_path", experiment.file, i);
    std::error_code error;
    fs::create_directories(model.output_file_path, error);
    if (error) {
      throw base::UsageError(fmt::format("{}: the folder {} cannot be made: {}", where,
                                         model.output_file_path, error.message()));
    }
    prove_writable(where, model.output_file(".log"));
  }
  prove_writable("working directory", kModelsPidFile);
}

std::string run_folder(const Experiment& experiment) {
  return experiment.models.front().output_file_path;
}

std::string prepare_trace(const Experiment& experiment, bool wanted) {
  const fs::path folder = fs::absolute(fs::path(run_folder(experiment)) / "trace");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".sltrace" || entry.path().filename() == kGpuLog) {
      fs::remove(entry.path(), error);
    }
  }
  if (!wanted) return {};
  fs::create_directories(folder, error);
  if (error) {
    throw base::UsageError(
        fmt::format("the folder {} cannot be made: {}", folder.string(), error.message()));
  }
  return folder;
}

std::string write_resolved_experiment(const Experiment& experiment) {
  const std::string path = fs::path(run_folder(experiment)) / "experiment.resolved.json";
  base::LineFile(path).write(experiment.source.dump(2) + "\n");
  return path;
}

}  // namespace sluice::runner
