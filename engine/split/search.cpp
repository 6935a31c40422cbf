#include "engine/split/search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

namespace sluice::engine {
namespace {

/// What the cost counts as 1: published bounds.
constexpr double kOverheadPerBlock = 0.08;
constexpr double kDeviation = 0.03;

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double deviation(const std::vector<double>& values) {
  const double mean = sum(values) / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace

Candidate rate(Cuts cuts, std::vector<double> ms, double whole_ms) {
  Candidate rated{.cuts = std::move(cuts), .ms = std::move(ms), .whole_ms = whole_ms};
  const auto blocks = static_cast<double>(rated.ms.size());
  rated.overhead = sum(rated.ms) / whole_ms - 1;
  rated.deviation_ms = deviation(rated.ms);
  rated.cost = std::exp(3 * (rated.overhead / (kOverheadPerBlock * blocks) - 1)) +
               std::exp(rated.deviation_ms / (kDeviation * whole_ms) - 1);
  return rated;
}

bool good_enough(const Candidate& candidate) {
  const auto blocks = static_cast<double>(candidate.ms.size());
  return candidate.overhead <= kOverheadPerBlock * blocks &&
         candidate.deviation_ms <= kDeviation * candidate.whole_ms;
}

/// Numbers from the seed. Not the standard distributions, which differ between libraries.
class SplitSearch::Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  [[nodiscard]] std::size_t below(std::size_t end) { return engine_() % end; }
  [[nodiscard]] bool chance(double probability) {
    return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability;
  }

 private:
  std::mt19937_64 engine_;
};

SplitSearch::SplitSearch(SearchSpace space, const SearchOptions& options, MeasureSplit measure)
    : space_(std::move(space)), options_(options), measure_(std::move(measure)) {}

Candidate SplitSearch::run(const AfterGeneration& after) {
  Random random(options_.seed);
  std::vector<Genes> population = first_population(random);
  Generation now;
  std::size_t stalled = 0;
  for (; now.step < options_.generations && stalled < options_.stall; ++now.step) {
    const bool more = evaluate(population);
    if (measured_.empty()) throw std::runtime_error("no time to measure even one candidate");
    const auto best = std::ranges::min_element(measured_, {},
                                               [](const auto& entry) { return entry.second.cost; });
    const bool better = now.step == 0 || best->second.cost < now.best.cost;
    stalled = better ? 0 : stalled + 1;
    now.measured = measured_.size();
    now.best = best->second;
    if (!after(now) || !more) break;
    population = next_population(population, random);
  }
  return now.best;
}

bool SplitSearch::evaluate(std::vector<Genes>& population) {
  for (const Genes& genes : population) {
    Cuts cuts = cuts_of(genes);
    if (measured_.contains(cuts)) continue;
    auto times = measure_(cuts);
    if (!times) return false;
    measured_.emplace(cuts, rate(cuts, std::move(times->ms), times->whole_ms));
  }
  std::ranges::stable_sort(population, {}, [this](const Genes& genes) { return cost_of(genes); });
  return true;
}

double SplitSearch::cost_of(const Genes& genes) const { return measured_.at(cuts_of(genes)).cost; }

Cuts SplitSearch::cuts_of(const Genes& genes) const {
  Cuts cuts;
  for (const std::size_t gene : genes) cuts.push_back(space_.nodes[gene]);
  return cuts;
}

SplitSearch::Genes SplitSearch::even_genes() const {
  Genes genes;
  for (std::size_t block = 1; block < space_.blocks; ++block) {
    const double ideal =
        space_.total_ms * static_cast<double>(block) / static_cast<double>(space_.blocks);
    const auto nearest = std::ranges::min_element(
        space_.prefix_ms, {}, [ideal](double ms) { return std::abs(ms - ideal); });
    genes.push_back(static_cast<std::size_t>(nearest - space_.prefix_ms.begin()));
  }
  repair(genes);
  return genes;
}

std::vector<SplitSearch::Genes> SplitSearch::first_population(Random& random) const {
  // The times of one pass are close to the truth, so the search begins around them.
  const Genes even = even_genes();
  std::set<Genes> distinct{even};
  std::vector<Genes> population{even};
  const std::size_t tries = 20 * options_.population;
  for (std::size_t i = 0; i < tries && population.size() < options_.population; ++i) {
    Genes genes = even;
    for (std::size_t& gene : genes) {
      const std::size_t reach = 1 + space_.nodes.size() / 10;
      const std::size_t moved = gene + random.below(2 * reach + 1);
      gene = moved < reach ? 0 : std::min(moved - reach, space_.nodes.size() - 1);
    }
    repair(genes);
    if (distinct.insert(genes).second) population.push_back(genes);
  }
  return population;
}

std::vector<SplitSearch::Genes> SplitSearch::next_population(const std::vector<Genes>& population,
                                                             Random& random) {
  const auto size = static_cast<double>(population.size());
  const auto elite = std::max<std::size_t>(1, static_cast<std::size_t>(size * options_.elite));
  std::vector<Genes> next(population.begin(), population.begin() + static_cast<long>(elite));
  while (next.size() < population.size()) next.push_back(child_of(population, random));
  return next;
}

SplitSearch::Genes SplitSearch::child_of(const std::vector<Genes>& population, Random& random) {
  // The population is sorted, so the smaller of two indices is the better parent.
  const auto parent = [&]() -> const Genes& {
    const std::size_t a = random.below(population.size());
    return population[std::min(a, random.below(population.size()))];
  };
  Genes child = parent();
  if (random.chance(options_.crossover)) {
    const Genes& other = parent();
    for (std::size_t i = 0; i < child.size(); ++i) {
      if (random.chance(0.5)) child[i] = other[i];
    }
    repair(child);
  }
  if (random.chance(options_.mutation)) child = mutated(child, random);
  // A child that is known already would teach nothing.
  constexpr int kTries = 8;
  for (int i = 0; i < kTries && measured_.contains(cuts_of(child)); ++i) {
    child = mutated(child, random);
  }
  return child;
}

SplitSearch::Genes SplitSearch::mutated(Genes genes, Random& random) const {
  constexpr std::size_t kNear = 3;
  std::size_t& gene = genes[random.below(genes.size())];
  if (random.chance(0.25)) {
    gene = random.below(space_.nodes.size());
  } else {
    const std::size_t moved = gene + random.below(2 * kNear + 1);
    gene = moved < kNear ? 0 : std::min(moved - kNear, space_.nodes.size() - 1);
  }
  repair(genes);
  return genes;
}

void SplitSearch::repair(Genes& genes) const {
  std::ranges::sort(genes);
  for (std::size_t i = 1; i < genes.size(); ++i) genes[i] = std::max(genes[i], genes[i - 1] + 1);
  for (std::size_t i = genes.size(); i-- > 0;) {
    genes[i] = std::min(genes[i], space_.nodes.size() - genes.size() + i);
  }
}

SummedCandidates best_by_sums(const SearchSpace& space, const SearchOptions& options,
                              std::size_t count) {
  std::map<std::size_t, double> prefix_ms;
  for (std::size_t i = 0; i < space.nodes.size(); ++i) {
    prefix_ms[space.nodes[i]] = space.prefix_ms[i];
  }
  SplitSearch search(space, options, [&](const Cuts& cuts) -> std::optional<SplitTimes> {
    SplitTimes times{.whole_ms = space.total_ms};
    double from = 0;
    for (const std::size_t cut : cuts) {
      times.ms.push_back(prefix_ms.at(cut) - std::exchange(from, prefix_ms.at(cut)));
    }
    times.ms.push_back(space.total_ms - from);
    return times;
  });
  (void)search.run([](const SplitSearch::Generation&) { return true; });
  SummedCandidates found{.rated = search.measured().size()};
  for (const auto& [cuts, candidate] : search.measured()) found.best.push_back(candidate);
  std::ranges::stable_sort(found.best, {}, &Candidate::cost);
  found.best.resize(std::min(count, found.best.size()));
  return found;
}

}  // namespace sluice::engine
