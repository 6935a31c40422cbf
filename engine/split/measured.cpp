#include "engine/split/measured.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace sluice::engine {
namespace {

constexpr int kRepeats = 20;
constexpr int kFewRepeats = 3;
/// A candidate takes about this long at most, unless a few repeats take longer.
constexpr double kCandidateMs = 1000;

}  // namespace

MeasuredSplit::MeasuredSplit(const SplitTarget& target, const SplitOptions& options,
                             std::string gpu, CandidateTimes known)
    : target_(target),
      options_(options),
      gpu_(std::move(gpu)),
      times_(std::move(known)),
      begin_ns_(base::monotonic_ns()) {
  if (!options_.operators.empty()) read_times();
  const double whole_ms = std::max(target_.whole_ms(kFewRepeats), 1e-3);
  // Each time the blocks, and the whole model next to them.
  repeats_ = std::clamp(static_cast<int>(kCandidateMs / (2 * whole_ms)), kFewRepeats, kRepeats);
  std::fprintf(stderr, "%s: whole %.3f ms at batch %zu, candidates are measured %d times\n",
               options_.model.c_str(), whole_ms, options_.batch, repeats_);
}

double MeasuredSplit::seconds() const { return base::seconds_since(begin_ns_); }

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

void MeasuredSplit::read_times() {
  operators_ = read_operators(options_.operators);
  const OperatorTarget& of = operators_.target;
  if (of.model == options_.model && of.batch == options_.batch && of.gpu == gpu_) return;
  throw base::UsageError(fmt::format("{}: of {} at batch {} on {}, not of {} at batch {} on {}",
                                     options_.operators, of.model, of.batch, of.gpu, options_.model,
                                     options_.batch, gpu_));
}

SearchSpace MeasuredSplit::space() const {
  SearchSpace space;
  space.blocks = options_.blocks.value();
  for (const Cut& cut : target_.cuts()) space.nodes.push_back(cut.node);
  if (options_.operators.empty()) {
    space.prefix_ms = target_.prefix_ms();
    space.total_ms = space.prefix_ms.back();
    space.prefix_ms.pop_back();
    return space;
  }
  for (const std::size_t node : space.nodes) space.prefix_ms.push_back(operators_.before(node));
  space.total_ms = operators_.before(std::numeric_limits<std::size_t>::max());
  return space;
}

Candidate MeasuredSplit::search_sums(ResultsFile& results) {
  const SummedCandidates summed = best_by_sums(space(), options_.search, *options_.measured);
  rated_ = summed.rated;
  std::optional<SplitSearch::Generation> now;
  ended_ = "all measured";
  for (const Candidate& candidate : summed.best) {
    const auto times = measure(candidate.cuts);
    if (!times) break;
    Candidate found = rate(candidate.cuts, times->ms, times->whole_ms);
    std::fprintf(stderr, "%s\n",
                 fmt::format("candidate {} of {}: {}: overhead {:.1f} %, deviation {:.3f} ms; "
                             "{:.3f} ms by sums",
                             now ? now->step + 2 : 1, summed.best.size(), found.cuts,
                             found.overhead * 100, found.deviation_ms, candidate.deviation_ms)
                     .c_str());
    if (!now) {
      now = SplitSearch::Generation{.best = found};
    } else {
      ++now->step;
      if (found.cost < now->best.cost) now->best = found;
    }
    now->measured = now->step + 1;
    results.add(*now);
    if (options_.early_end && good_enough(now->best)) {
      ended_ = "good enough";
      break;
    }
  }
  return now.value().best;
}

Candidate MeasuredSplit::search(ResultsFile& results) {
  if (options_.measured) return search_sums(results);
  SplitSearch search(space(), options_.search, [this](const Cuts& cuts) { return measure(cuts); });
  Candidate best = search.run(
      [&](const SplitSearch::Generation& generation) { return after(generation, results); });
  if (ended_.empty()) ended_ = "stall";
  return best;
}

}  // namespace sluice::engine
