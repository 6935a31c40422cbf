#include "runner/run/progress.hpp"

#include <fmt/format.h>

namespace sluice::runner {

Progress::Progress(double duration_s, const std::vector<std::string>& names,
                   const std::vector<std::string>& csv_files)
    : duration_s_(duration_s) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    models_.push_back({names[i], JobCounter(csv_files[i])});
  }
}

void Progress::update(double elapsed_s) {
  if (!line_.due(elapsed_s)) return;
  std::string text = fmt::format("{:.0f} of {:g} s", elapsed_s, duration_s_);
  for (Line& model : models_) text += fmt::format("  {}: {} jobs", model.name, model.jobs.count());
  line_.show(elapsed_s, text);
}

}  // namespace sluice::runner
