#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "predictor/model/binary.hpp"
#include "predictor/model/gaussian_process.hpp"
#include "predictor/model/model.hpp"
#include "predictor/model/times.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;

constexpr double kMostSpread = 0.35;  ///< That is subtracted; of a logarithm.

/// A program on a device.
struct Asked {
  const Program& program;
  const Task& task;
  const DeviceInfo& device;
};

Asked asked(const Dataset& data, const std::vector<DeviceInfo>& devices, const Query& query) {
  return {data.programs[query.program], data.task_of(query), devices[query.device]};
}

/// The fitted times.
struct Analytic {
  TimeModel model;

  void fit(const Lesson& lesson, const std::vector<Label>& labels, std::uint64_t seed) {
    std::vector<Times> times;
    std::vector<double> wanted;
    for (const Label& label : labels) {
      const Asked about = asked(lesson.data, lesson.devices, label.query);
      times.push_back(busy_times(about.program, about.task, about.device));
      wanted.push_back(std::log(label.seconds));
    }
    model = fit_time_model(times, wanted, seed);
  }
  [[nodiscard]] json saved() const {
    const std::vector<double> factors(model.log_factors.begin(), model.log_factors.end());
    return {{"factors", as_binary(factors)}, {"launch", model.log_launch}, {"p", model.log_p}};
  }
  void restore(const json& saved) {
    const auto factors = from_binary<double>(saved.at("factors"));
    if (factors.size() != kTimes) throw base::UsageError("a predictor of other times");
    std::ranges::copy(factors, model.log_factors.begin());
    saved.at("launch").get_to(model.log_launch);
    saved.at("p").get_to(model.log_p);
  }
};

/// Those to tune with, too.
std::vector<Label> labels_of(const Lesson& lesson) {
  std::vector<Label> found(lesson.train.begin(), lesson.train.end());
  found.insert(found.end(), lesson.tune.begin(), lesson.tune.end());
  return found;
}

class AnalyticModel : public LatencyModel {
 public:
  explicit AnalyticModel(std::uint64_t seed) : seed_(seed) {}

  void fit(const Lesson& lesson) override { analytic_.fit(lesson, labels_of(lesson), seed_); }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    std::vector<double> seconds;
    for (const Query& query : queries) {
      const Asked about = asked(data, devices, query);
      const Times times = busy_times(about.program, about.task, about.device);
      seconds.push_back(std::exp(analytic_.model.log_seconds(times)));
    }
    return seconds;
  }
  [[nodiscard]] json saved() const override { return analytic_.saved(); }
  void restore(const json& saved) override { analytic_.restore(saved); }

 private:
  std::uint64_t seed_;
  Analytic analytic_;
};

class Gaussian : public LatencyModel {
 public:
  explicit Gaussian(std::uint64_t seed) : seed_(seed) {}

  void fit(const Lesson& lesson) override {
    compiled_.reset();
    auto labels = labels_of(lesson);
    keep_one_of_each_program(labels, GaussianProcess::kMostRows);
    analytic_.fit(lesson, labels, seed_);
    source_ = learn(lesson, labels, false);
    std::erase_if(labels, [&](const Label& label) {
      return !lesson.data.programs[label.query.program].compiled;
    });
    if (!labels.empty()) compiled_ = learn(lesson, labels, true);
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    std::vector<double> seconds;
    for (const Query& query : queries) seconds.push_back(predict(asked(data, devices, query)));
    return seconds;
  }

  [[nodiscard]] json saved() const override {
    json parts{{"analytic", analytic_.saved()}, {"source", source_.to_json()}};
    if (compiled_) parts["compiled"] = compiled_->to_json();
    return parts;
  }

  void restore(const json& saved) override {
    analytic_.restore(saved.at("analytic"));
    source_ = GaussianProcess::of(saved.at("source"));
    compiled_.reset();
    if (saved.contains("compiled")) compiled_ = GaussianProcess::of(saved.at("compiled"));
  }

 private:
  [[nodiscard]] static std::vector<double> row_of(const Asked& about, const Times& times,
                                                  double base, bool compiled) {
    auto row = shape_of(about.program, about.task, about.device, compiled);
    row.push_back(base);
    // Each part as a share of the whole; a clock where it has nothing to do.
    const double clock = 1e-6 / about.device.clock_mhz;
    for (const double time : times) row.push_back(std::log2(time + clock) - base / std::log(2.0));
    return row;
  }

  [[nodiscard]] GaussianProcess learn(const Lesson& lesson, const std::vector<Label>& labels,
                                      bool compiled) const {
    std::vector<std::vector<double>> rows;
    std::vector<double> targets;
    for (const Label& label : labels) {
      const Asked about = asked(lesson.data, lesson.devices, label.query);
      const Times times = busy_times(about.program, about.task, about.device);
      const double base = analytic_.model.log_seconds(times);
      rows.push_back(row_of(about, times, base, compiled));
      targets.push_back(std::log(label.seconds) - base);
    }
    GaussianProcess learned;
    learned.fit(rows, targets, seed_);
    return learned;
  }

  [[nodiscard]] double predict(const Asked& about) const {
    const bool compiled = about.program.compiled.has_value() && compiled_.has_value();
    const Times times = busy_times(about.program, about.task, about.device);
    const double base = analytic_.model.log_seconds(times);
    const auto& process = compiled ? *compiled_ : source_;
    const auto [left, spread] = process.predict(row_of(about, times, base, compiled));
    // The least relative error to expect: one that is too long counts more than one too short.
    return std::exp(base + left - std::min(spread, kMostSpread));
  }

  std::uint64_t seed_;
  Analytic analytic_;
  std::optional<GaussianProcess> compiled_;
  GaussianProcess source_;
};

}  // namespace

std::unique_ptr<LatencyModel> make_gaussian(std::uint64_t seed) {
  return std::make_unique<Gaussian>(seed);
}
std::unique_ptr<LatencyModel> make_analytic(std::uint64_t seed) {
  return std::make_unique<AnalyticModel>(seed);
}

}  // namespace sluice::predictor
