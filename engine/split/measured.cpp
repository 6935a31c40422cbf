#include "engine/split/measured.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.hpp"

namespace sluice::engine {
namespace {

constexpr int kRepeats = 20;
constexpr int kFewRepeats = 3;
/// A candidate takes about this long at most, unless a few repeats take longer.
constexpr double kCandidateMs = 1000;

}  // namespace

MeasuredSplit::MeasuredSplit(const SplitTarget& target, const SplitOptions& options,
                             CandidateTimes known)
    : target_(target),
      options_(options),
      times_(std::move(known)),
      begin_ns_(base::monotonic_ns()) {
  const double whole_ms = std::max(target_.whole_ms(kFewRepeats), 1e-3);
  // Each time the blocks, and the whole model next to them.
  repeats_ = std::clamp(static_cast<int>(kCandidateMs / (2 * whole_ms)), kFewRepeats, kRepeats);
  std::fprintf(stderr, "%s: whole %.3f ms at batch %zu, candidates are measured %d times\n",
               options_.model.c_str(), whole_ms, options_.batch, repeats_);
}

double MeasuredSplit::seconds() const {
  return static_cast<double>(base::monotonic_ns() - begin_ns_) / 1e9;
}

std::optional<SplitTimes> MeasuredSplit::measure(const Cuts& cuts) {
  if (const auto known = times_.find(cuts); known != times_.end()) return known->second;
  if (measured_ > 0 && seconds() > options_.limit_s) {
    ended_ = "time";
    return std::nullopt;
  }
  ++measured_;
  SplitTimes times = target_.times(cuts, repeats_);
  times_.emplace(cuts, times);
  return times;
}

bool MeasuredSplit::after(const SplitSearch::Generation& now, ResultsFile& results) {
  results.add(now);
  const double per_candidate = measured_ > 0 ? seconds() / static_cast<double>(measured_) : 0;
  const auto left = static_cast<double>((options_.search.generations - now.step - 1) *
                                        options_.search.population);
  const double most = std::clamp(options_.limit_s - seconds(), 0.0, left * per_candidate);
  std::fprintf(stderr, "%s\n",
               fmt::format("step {}: {} candidates, best {}: overhead {:.1f} %, deviation {:.3f} "
                           "ms; {:.0f} s, at most {:.0f} s left",
                           now.step, now.measured, now.best.cuts, now.best.overhead * 100,
                           now.best.deviation_ms, seconds(), most)
                   .c_str());
  if (!ended_.empty()) return false;
  if (now.step + 1 == options_.search.generations) ended_ = "generations";
  if (!options_.early_end || !good_enough(now.best)) return true;
  ended_ = "good enough";
  return false;
}

Candidate MeasuredSplit::search(ResultsFile& results) {
  SearchSpace space;
  space.prefix_ms = target_.prefix_ms();
  space.total_ms = space.prefix_ms.back();
  space.prefix_ms.pop_back();
  space.blocks = options_.blocks.value();
  for (const Cut& cut : target_.cuts()) space.nodes.push_back(cut.node);
  SplitSearch search(std::move(space), options_.search,
                     [this](const Cuts& cuts) { return measure(cuts); });
  Candidate best = search.run(
      [&](const SplitSearch::Generation& generation) { return after(generation, results); });
  if (ended_.empty()) ended_ = "stall";
  return best;
}

}  // namespace sluice::engine
