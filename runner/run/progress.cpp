#include "runner/run/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace sluice::runner {
namespace {

constexpr double kTerminalS = 0.5;
constexpr double kPlainS = 5;

}  // namespace

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO) == 1), next_s_(terminal_ ? 0 : kPlainS) {}

void ProgressLine::show(double elapsed_s, const std::string& text) {
  next_s_ = elapsed_s + (terminal_ ? kTerminalS : kPlainS);
  std::fputs((terminal_ ? "\r\033[K" + text : text + "\n").c_str(), stderr);
  shown_ = terminal_;
}

void ProgressLine::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

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
