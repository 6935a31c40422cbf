#include "profiler/tuner/xgb_tuner.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "profiler/tuner/annealing.hpp"
#include "profiler/tuner/trees.hpp"

namespace sluice::profiler {
namespace {

constexpr std::size_t kRound = 64;  ///< Programs between two trainings.
constexpr double kEpsilon = 0.05;   ///< The part of a round that is random.
constexpr int kTreeRounds = 50;
/// Columns of TVM's per-store features: the curve of arithmetic intensity.
constexpr std::size_t kCurveBegin = 147;
constexpr std::size_t kCurveEnd = 157;

/// How programs look to the trees.
enum class View { kKnobs, kStores, kCurve };

class XgbTuner : public Tuner {
 public:
  XgbTuner(const TunerNeeds& needs, View view, const std::string& objective)
      : needs_(needs),
        view_(view),
        random_(needs.seed),
        unseen_(needs.space, random_),
        // AutoTVM's parameters. A few thousand rows: on a busy machine, more threads cost a hundred
        // times as long.
        parameters_{{"objective", objective}, {"max_depth", "6"},
                    {"gamma", "0.0001"},      {"min_child_weight", "1"},
                    {"subsample", "1.0"},     {"eta", "0.3"},
                    {"lambda", "1.0"},        {"seed", std::to_string(needs.seed % 1'000'000)},
                    {"nthread", "1"}} {
    // Each look at the stores of programs costs a call of TVM.
    if (view != View::kKnobs) annealing_ = {.chains = 64, .steps = 30};
  }

  std::vector<std::uint64_t> propose(std::size_t count) override {
    count = std::min(count, kRound);
    std::vector<std::uint64_t> chosen;
    if (trees_.fitted()) {
      const auto part =
          static_cast<std::size_t>(std::ceil(static_cast<double>(count) * (1 - kEpsilon)));
      const RateOf rate = [this](const auto& indices) { return ratings(indices); };
      for (const std::uint64_t index :
           anneal(needs_.space, annealing_, rate, trials_, unseen_, random_, part)) {
        if (unseen_.take(index)) chosen.push_back(index);
      }
    }
    unseen_.fill(chosen, count);
    return chosen;
  }

  void learn(const std::vector<Trial>& trials) override {
    trials_.insert(trials_.end(), trials.begin(), trials.end());
    double best = INFINITY;
    for (const Trial& trial : trials_) best = std::min(best, trial.cost);
    if (!std::isfinite(best)) return;
    std::vector<std::uint64_t> indices;
    for (const Trial& trial : trials_) indices.push_back(trial.index);
    const auto seen = rows_of(indices);
    Table table;
    std::vector<float> labels;
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      if (!seen[i]) continue;
      table.add(*seen[i]);
      labels.push_back(static_cast<float>(best / trials_[i].cost));
    }
    if (table.rows > 0) trees_.fit(table, labels, {}, parameters_, kTreeRounds);
  }

 private:
  using Row = std::optional<std::vector<float>>;

  /// A row for each program; none where the space refuses it.
  std::vector<Row> rows_of(const std::vector<std::uint64_t>& indices) {
    std::vector<Row> rows;
    if (view_ != View::kKnobs) look_at_stores(indices);
    for (const std::uint64_t index : indices) {
      rows.push_back(view_ == View::kKnobs ? needs_.space.numbers(needs_.space.choice(index))
                                           : stores_.at(index));
    }
    return rows;
  }

  void look_at_stores(const std::vector<std::uint64_t>& indices) {
    std::vector<std::uint64_t> unknown;
    for (const std::uint64_t index : indices) {
      if (stores_.try_emplace(index).second) unknown.push_back(index);
    }
    if (unknown.empty()) return;
    const auto features = needs_.features(unknown);
    for (std::size_t i = 0; i < unknown.size(); ++i) {
      if (!features[i].empty()) stores_[unknown[i]] = row_of(unknown[i], features[i]);
    }
  }

  /// Mean and maximum over the stores of a program.
  std::vector<float> row_of(std::uint64_t index, const std::vector<std::vector<float>>& stores) {
    const std::size_t begin = view_ == View::kCurve ? kCurveBegin : 0;
    const std::size_t end = view_ == View::kCurve ? kCurveEnd : stores[0].size();
    std::vector<float> row;
    for (std::size_t column = begin; column < end; ++column) {
      float sum = 0;
      float most = stores[0].at(column);
      for (const auto& store : stores) {
        sum += store.at(column);
        most = std::max(most, store.at(column));
      }
      row.push_back(sum / static_cast<float>(stores.size()));
      row.push_back(most);
    }
    if (view_ == View::kCurve) {
      const auto knobs = needs_.space.numbers(needs_.space.choice(index));
      row.insert(row.end(), knobs.begin(), knobs.end());
    }
    return row;
  }

  std::vector<float> ratings(const std::vector<std::uint64_t>& indices) {
    const auto rows = rows_of(indices);
    Table known;
    for (const Row& row : rows) {
      if (row) known.add(*row);
    }
    const auto rated = trees_.predict(known);
    std::vector<float> ratings;
    std::size_t at = 0;
    for (const Row& row : rows) ratings.push_back(row ? rated[at++] : -INFINITY);
    return ratings;
  }

  TunerNeeds needs_;
  View view_;
  Random random_;
  Unseen unseen_;
  Trees::Parameters parameters_;
  Trees trees_;
  Annealing annealing_;
  std::vector<Trial> trials_;
  std::map<std::uint64_t, Row> stores_;  ///< Rows of programs that were looked at.
};

}  // namespace

std::unique_ptr<Tuner> make_xgb_tuner(const std::string& name, const TunerNeeds& needs) {
  const std::string regression = "reg:squarederror";
  if (name == "xgb_knob") return std::make_unique<XgbTuner>(needs, View::kKnobs, regression);
  if (!needs.features) throw base::RunError(name + " needs the features of programs; use xgb_knob");
  if (name == "xgb_curve") return std::make_unique<XgbTuner>(needs, View::kCurve, regression);
  const bool ranks = name == "xgb-rank";
  return std::make_unique<XgbTuner>(needs, View::kStores, ranks ? "rank:pairwise" : regression);
}

}  // namespace sluice::profiler
