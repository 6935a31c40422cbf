#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/make_dataset.hpp"

namespace sluice::predictor {

namespace fs = std::filesystem;

/// Ranks the programs of a pack, measured or not.
void search_command(const Options& options) {
  const DeviceInfo device = device_asked_for(options);
  Dropped ignored;
  const Dataset data = make_dataset(options.inputs, false, ignored);
  const auto model = load_predictor(options);
  const auto predicted = predict_on(device, *model, data);
  // Of the programs that the model can predict.
  std::map<std::size_t, std::vector<std::size_t>> groups;
  std::size_t known = 0;
  for (std::size_t p = 0; p < predicted.size(); ++p) {
    if (!std::isfinite(predicted[p])) continue;
    groups[data.programs[p].task].push_back(p);
    ++known;
  }
  if (known == 0) {
    throw base::UsageError("the predictor has no way to predict any of these programs on " +
                           device.name + "; train one");
  }
  const fs::path folder = results_folder(options);
  fs::create_directories(folder);
  const fs::path file = folder / "schedules.csv";
  std::ofstream out(file);
  out << "task,name,rank,program,index,predicted_s\n";
  for (auto& [task, order] : groups) {
    std::ranges::stable_sort(order, {}, [&](std::size_t p) { return predicted[p]; });
    for (std::size_t rank = 0; rank < std::min(options.top, order.size()); ++rank) {
      const Program& program = data.programs[order[rank]];
      out << fmt::format("{},{},{},{},{},{:.6g}\n", data.tasks[task].id, data.tasks[task].name,
                         rank, program.id, program.index, predicted[order[rank]]);
    }
  }
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
  fmt::print(
      "{}: the {} fastest of {} programs for each of {} tasks on {}{}\n", file.string(),
      options.top, known, groups.size(), device.name,
      known < predicted.size() ? fmt::format("; {} not predicted", predicted.size() - known) : "");
}

}  // namespace sluice::predictor
