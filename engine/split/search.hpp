#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/block_times.hpp"

/// The search for evenly sized blocks of a model: a genetic search over measured candidates, as
/// published for DLIR. Knows nothing of LibTorch or of a clock.
namespace sluice::engine {

/// The nodes at which blocks begin, ascending.
using Cuts = std::vector<std::size_t>;

/// A measured candidate.
struct Candidate {
  Cuts cuts{};
  std::vector<double> ms{};  ///< Time of each block.
  double whole_ms = 0;       ///< Time of the uncut model, measured in turn with the blocks.
  double overhead = 0;       ///< The sum of the blocks over the whole model, minus 1.
  double deviation_ms = 0;   ///< Standard deviation of the block times.
  double cost = 0;           ///< What the search makes small.
};

/// Rates a candidate as published: exp(3 (overhead / (0.08 K) - 1)) + exp(deviation / (0.03 whole)
/// - 1), for K blocks.
[[nodiscard]] Candidate rate(Cuts cuts, std::vector<double> ms, double whole_ms);

/// Whether overhead and deviation are both within what the cost counts as 1.
[[nodiscard]] bool good_enough(const Candidate& candidate);

struct SearchOptions {
  std::size_t population = 20;
  std::size_t generations = 100;
  std::size_t stall = 7;  ///< Generations without a better candidate after which the search ends.
  double crossover = 0.7;
  double mutation = 0.2;
  double elite = 0.25;  ///< The part of a population that lives on unchanged.
  std::uint64_t seed = 0;
};

/// What is searched: a model and the places at which it can be cut.
struct SearchSpace {
  std::vector<std::size_t> nodes{};  ///< The possible cuts, ascending.
  std::vector<double> prefix_ms{};   ///< The time from the start of the model to each of them.
  double total_ms = 0;               ///< The same to the end of the model.
  std::size_t blocks = 2;
};

/// The times of a candidate, or nothing: the search must end, for lack of time.
using MeasureSplit = std::function<std::optional<SplitTimes>(const Cuts&)>;

/// Candidates that were not measured: the time of a block is the sum of its nodes' times.
struct SummedCandidates {
  std::vector<Candidate> best{};  ///< By their cost, the best first.
  std::size_t rated = 0;          ///< All of them.
};
/// The `count` candidates that a search on sums finds best. Costs nothing but the host's time.
[[nodiscard]] SummedCandidates best_by_sums(const SearchSpace& space, const SearchOptions& options,
                                            std::size_t count);

class SplitSearch {
 public:
  /// `space.nodes` must hold at least `space.blocks` - 1 cuts.
  SplitSearch(SearchSpace space, const SearchOptions& options, MeasureSplit measure);

  /// What happened in a generation.
  struct Generation {
    std::size_t step = 0;
    std::size_t measured = 0;  ///< Candidates so far.
    Candidate best;            ///< Of all so far.
  };
  /// Called after each generation. False ends the search.
  using AfterGeneration = std::function<bool(const Generation&)>;

  /// The best candidate. Every candidate is measured once. Throws what `measure` throws, and
  /// std::runtime_error if not even one candidate could be measured.
  [[nodiscard]] Candidate run(const AfterGeneration& after);

  /// Every measured candidate.
  [[nodiscard]] const std::map<Cuts, Candidate>& measured() const { return measured_; }

 private:
  using Genes = std::vector<std::size_t>;  ///< Ascending indices into space_.nodes.
  class Random;

  [[nodiscard]] Genes even_genes() const;
  [[nodiscard]] std::vector<Genes> first_population(Random& random) const;
  [[nodiscard]] std::vector<Genes> next_population(const std::vector<Genes>& population,
                                                   Random& random);
  [[nodiscard]] Genes child_of(const std::vector<Genes>& population, Random& random);
  [[nodiscard]] Genes mutated(Genes genes, Random& random) const;
  void repair(Genes& genes) const;
  [[nodiscard]] Cuts cuts_of(const Genes& genes) const;
  /// Measures what is new in the population and sorts it, best first. False: no time is left.
  [[nodiscard]] bool evaluate(std::vector<Genes>& population);
  [[nodiscard]] double cost_of(const Genes& genes) const;

  SearchSpace space_;
  SearchOptions options_;
  MeasureSplit measure_;
  std::map<Cuts, Candidate> measured_;
};

}  // namespace sluice::engine
