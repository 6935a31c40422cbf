#include <fmt/format.h>

#include "predictor/commands/commands.hpp"
#include "predictor/data/dataset_file.hpp"
#include "predictor/data/make_dataset.hpp"

namespace sluice::predictor {

namespace fs = std::filesystem;

void make_dataset_command(const Options& options) {
  const fs::path folder = options.out.empty() ? "dataset" : options.out;
  Dropped dropped;
  const Dataset data = make_dataset(options.inputs, true, dropped);
  fs::create_directories(folder);
  save_dataset((folder / "dataset.cbor").string(), data);
  write_tasks((folder / "tasks.csv").string(), data);
  write_counts((folder / "counts.csv").string(), data);
  fmt::print("{}: {} labels of {} programs of {} tasks, {} networks; devices:", folder.string(),
             data.labels.size(), data.programs.size(), data.tasks.size(), data.networks.size());
  std::vector<std::size_t> counts(data.devices.size());
  for (const Label& label : data.labels) ++counts[label.query.device];
  for (std::size_t i = 0; i < counts.size(); ++i) {
    fmt::print("{} {} ({})", i > 0 ? "," : "", data.devices[i], counts[i]);
  }
  fmt::print(
      "\ndropped: {} failed, {} disturbed, {} uneven, {} shorter than 1 us, {} without "
      "source, {} of unknown programs; {} measured again\n",
      dropped.failed, dropped.disturbed, dropped.uneven, dropped.brief, dropped.sourceless,
      dropped.unknown, dropped.repeated);
}

}  // namespace sluice::predictor
