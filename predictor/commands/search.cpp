#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/make_dataset.hpp"

namespace sluice::predictor {

namespace fs = std::filesystem;

/// Ranks the programs of a pack, measured or not.
void search_command(const Options& options) {
  if (options.device_name.empty()) {
    throw base::UsageError("--device-name is missing: the device that the programs will run on");
  }
  Dropped ignored;
  Dataset data = make_dataset(options.inputs, false, ignored);
  const auto known = read_devices(devices_file(options).string());
  const std::vector<DeviceInfo> devices{device_info(known, options.device_name)};
  const auto model = load_predictor(options);
  std::vector<Query> queries;
  for (std::size_t p = 0; p < data.programs.size(); ++p) queries.push_back({p, 0});
  const auto predicted = model->predict(data, devices, queries);
  const fs::path folder = results_folder(options);
  fs::create_directories(folder);
  const fs::path file = folder / "schedules.csv";
  std::ofstream out(file);
  out << "task,name,rank,program,index,predicted_s\n";
  const auto groups = by_task(data, queries);
  for (const auto& [task, programs] : groups) {
    std::vector<std::size_t> order = programs;
    std::ranges::stable_sort(order, {}, [&](std::size_t p) { return predicted[p]; });
    for (std::size_t rank = 0; rank < std::min(options.top, order.size()); ++rank) {
      const Program& program = data.programs[order[rank]];
      out << fmt::format("{},{},{},{},{},{:.6g}\n", data.tasks[task].id, data.tasks[task].name,
                         rank, program.id, program.index, predicted[order[rank]]);
    }
  }
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
  fmt::print("{}: the {} fastest of {} programs for each of {} tasks on {}\n", file.string(),
             options.top, data.programs.size(), groups.size(), options.device_name);
}

}  // namespace sluice::predictor
