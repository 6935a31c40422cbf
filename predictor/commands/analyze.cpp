#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "predictor/commands/commands.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;

struct Errors {
  std::vector<double> relative;
  double bias = 0;  ///< Sum of log(predicted / measured).
};

const char* spills_of(const Program& program) {
  if (!program.compiled) return "unknown";
  return program.compiled->spill_bytes > 0 ? "yes" : "no";
}

/// By kind of group and its value.
using Groups = std::map<std::pair<std::string, std::string>, Errors>;

Groups group_errors(const Loaded& loaded, std::span<const Label> labels,
                    std::span<const double> predicted) {
  Groups groups;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const Label& label = labels[i];
    const Program& program = loaded.data.programs[label.query.program];
    const int decade = static_cast<int>(std::floor(std::log10(label.seconds * 1e6)));
    for (const auto& key :
         {std::pair<std::string, std::string>{"operator", loaded.data.tasks[program.task].name},
          {"leaves", fmt::format("{}", program.leaves)},
          {"spills", spills_of(program)},
          {"from_us", fmt::format("1e{}", decade)},
          {"device", loaded.data.devices[label.query.device]}}) {
      Errors& errors = groups[key];
      errors.relative.push_back(relative_error(label.seconds, predicted[i]));
      errors.bias += std::log(predicted[i] / label.seconds);
    }
  }
  return groups;
}

}  // namespace

void analyze_command(const Options& options) {
  const Loaded loaded = load(options);
  const auto model = load_predictor(options);
  Options used = options;
  const auto test = test_labels(loaded.data, used);
  const auto predicted = model->predict(loaded.data, loaded.devices, queries_of(test));
  const fs::path folder = results_folder(options);
  fs::create_directories(folder);
  std::ofstream out(folder / "analysis.csv");
  out << "group,value,count,mape,median,p90,bias\n";
  fmt::print("{:<9} {:<40} {:>6} {:>7} {:>7} {:>7} {:>7}\n", "GROUP", "VALUE", "COUNT", "MAPE",
             "median", "p90", "bias");
  for (const auto& [key, errors] : group_errors(loaded, test, predicted)) {
    const double count = static_cast<double>(errors.relative.size());
    const double mape = base::mean(errors.relative);
    const double median = base::percentile(errors.relative, 0.5);
    const double p90 = base::percentile(errors.relative, 0.9);
    const double bias = std::expm1(errors.bias / count);
    out << fmt::format("{},{},{},{:.6g},{:.6g},{:.6g},{:.6g}\n", key.first, key.second, count, mape,
                       median, p90, bias);
    fmt::print("{:<9} {:<40} {:>6} {:>6.1f}% {:>6.1f}% {:>6.1f}% {:>6.1f}%\n", key.first,
               key.second.substr(0, 40), count, mape * 100, median * 100, p90 * 100, bias * 100);
  }
  if (!out.flush()) throw base::RunError("cannot write " + (folder / "analysis.csv").string());
}

}  // namespace sluice::predictor
