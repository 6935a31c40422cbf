#include "profiler/tuning/tuning.hpp"

#include <algorithm>
#include <cmath>

#include "profiler/packs/knobs.hpp"

namespace sluice::profiler {
namespace {

constexpr std::size_t kBatch = 64;
/// Times the programs made. Of the random programs of a convolution for a GPU, TVM refuses 85 to
/// 98 %.
constexpr std::size_t kMostRefused = 100;

class TaskTuning {
 public:
  TaskTuning(const Task& task, const TuningOptions& options, const TuningCalls& calls,
             const KnownRecords& known)
      : options_(options),
        calls_(calls),
        known_(known),
        space_(task.sketches),
        tuner_(make_tuner(options.tuner, {.space = space_,
                                          .seed = options.seed,
                                          .features = calls.features,
                                          .predicted = calls.predicted})) {}

  std::vector<Record> run(const OnRecord& on_record) {
    while (records_.size() < options_.trials && (more_ || !made_.empty())) {
      const std::size_t wanted = std::min(kBatch, options_.trials - records_.size());
      // A whole round is compiled at once: so the slowest compilation is waited for once.
      while (more_ && made_.size() < wanted) make_some(wanted);
      measure_round(wanted, on_record);
      tuner_->learn(trials_);
      trials_.clear();
    }
    return std::move(records_);
  }

 private:
  void make_some(std::size_t wanted) {
    // As many as it takes if the space goes on to refuse as many.
    const std::size_t good = records_.size() + made_.size() + 1;
    const std::size_t missing = wanted - made_.size();
    const auto indices =
        tuner_->propose(std::min(kBatch, (missing * (good + refused_) + good - 1) / good));
    const auto programs = make(indices);
    for (std::size_t i = 0; i < programs.size(); ++i) {
      if (programs[i]) {
        made_.push_back(*programs[i]);
      } else {
        trials_.push_back({indices[i], INFINITY});
        ++refused_;
      }
    }
    // Looking at an index takes up to seconds: a space without programs must not take days.
    const std::size_t hoped = std::min(options_.trials, records_.size() + made_.size() + kBatch);
    more_ = !indices.empty() && refused_ < kMostRefused * hoped;
  }

  /// Of a known program only the index.
  [[nodiscard]] std::vector<std::optional<Program>> make(
      const std::vector<std::uint64_t>& indices) const {
    std::vector<std::uint64_t> unknown;
    for (const std::uint64_t index : indices) {
      if (!known_.contains(index)) unknown.push_back(index);
    }
    auto made = calls_.make(unknown);
    std::vector<std::optional<Program>> programs;
    std::size_t at = 0;
    for (const std::uint64_t index : indices) {
      if (known_.contains(index)) {
        programs.emplace_back(Program{})->index = index;
      } else {
        programs.push_back(std::move(made[at++]));
      }
    }
    return programs;
  }

  void measure_round(std::size_t wanted, const OnRecord& on_record) {
    const auto end = made_.begin() + static_cast<long>(std::min(wanted, made_.size()));
    std::vector<std::uint64_t> indices;
    std::vector<Program> unknown;
    for (auto program = made_.begin(); program != end; ++program) {
      indices.push_back(program->index);
      if (!known_.contains(program->index)) unknown.push_back(std::move(*program));
    }
    made_.erase(made_.begin(), end);
    std::vector<Record> measured = calls_.measure(std::move(unknown), on_record);
    std::size_t at = 0;
    for (const std::uint64_t index : indices) {
      const auto known = known_.find(index);
      const Record& record =
          records_.emplace_back(known == known_.end() ? std::move(measured[at++]) : known->second);
      // A disturbed time says nothing of the program, neither good nor bad.
      if (record.disturbed()) continue;
      trials_.push_back({record.index, record.good_cost()});
    }
  }

  const TuningOptions& options_;
  const TuningCalls& calls_;
  const KnownRecords& known_;
  ProgramSpace space_;
  std::unique_ptr<Tuner> tuner_;
  std::vector<Record> records_;
  std::vector<Program> made_;  ///< And not measured yet.
  std::vector<Trial> trials_;  ///< That the tuner has not learned from.
  std::size_t refused_ = 0;
  bool more_ = true;
};

}  // namespace

std::vector<Record> tune_task(const Task& task, const TuningOptions& options,
                              const TuningCalls& calls, const KnownRecords& known,
                              const OnRecord& on_record) {
  return TaskTuning(task, options, calls, known).run(on_record);
}

}  // namespace sluice::profiler
