#include "runner/run/output_folders.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "runner/job_log.hpp"
#include "runner/run/models_pid.hpp"

namespace sluice::runner {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResolvedFile = "experiment.resolved.json";
/// Files of the whole run. `sluice report` reads them.
constexpr std::array kRunFiles{"results.json", "results.csv", "status.json",
                               kModelsPidFile, kResolvedFile, "report.html"};
constexpr std::array kModelFiles{".log", ".csv", ".arrivals.csv", ".digest", ".out"};

void prove_writable(const std::string& where, const std::string& path) {
  const base::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() >= 0) return;
  throw base::UsageError(
      fmt::format("{}: {} cannot be written: {}", where, path, std::strerror(errno)));
}

void remove_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) fs::remove(path, ignored);
}

void remove_logs_of_mps(const fs::path& folder) {
  for (const char* name : {"control.out", "control.log", "server.log"}) remove_file(folder / name);
  std::error_code ignored;
  fs::remove(folder, ignored);  // only if it is empty
}

}  // namespace

OutputFolders::OutputFolders(const Experiment& experiment) {
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    const std::string& folder = experiment.models[i].output_file_path;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      throw base::UsageError(
          fmt::format("{}: /models/{}/output_file_path: the folder {} cannot be "
                      "made: {}",
                      experiment.file, i, folder, error.message()));
    }
    locks_.try_emplace(fs::canonical(folder, error), folder, "sluice run");
  }
}

bool remove_former_run(const Experiment& experiment) {
  const fs::path folder = run_folder(experiment);
  std::ifstream file(folder / kResolvedFile);
  if (!file) return false;
  const nlohmann::json former = nlohmann::json::parse(file, nullptr, false);
  if (former.contains("models")) {
    for (const nlohmann::json& model : former["models"]) {
      const char* const key = "output_file_name";
      if (!model.contains(key) || !model[key].is_string()) continue;
      // Somebody else may have written the file: nothing outside of the folder is removed.
      const std::string name = fs::path(model[key].get<std::string>()).filename();
      for (const char* suffix : kModelFiles) remove_file(folder / (name + suffix));
    }
  }
  for (const char* name : kRunFiles) remove_file(folder / name);
  remove_logs_of_mps(folder / "mps");
  return true;
}

void prove_writable(const Experiment& experiment, const std::string& pid_file) {
  for (std::size_t i = 0; i < experiment.models.size(); ++i) {
    prove_writable(fmt::format("{}: /models/{}/output_file_path", experiment.file, i),
                   experiment.models[i].output_file(".log"));
  }
  if (!pid_file.empty()) prove_writable("--pid-file", pid_file);
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
  if (!wanted) {
    fs::remove(folder, error);  // only if it is empty
    return {};
  }
  fs::create_directories(folder, error);
  if (error) {
    throw base::UsageError(
        fmt::format("the folder {} cannot be made: {}", folder.string(), error.message()));
  }
  return folder;
}

std::string write_resolved_experiment(const Experiment& experiment) {
  const std::string path = fs::path(run_folder(experiment)) / kResolvedFile;
  base::LineFile(path).write(experiment.source.dump(2) + "\n");
  return path;
}

}  // namespace sluice::runner
