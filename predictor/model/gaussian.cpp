#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "predictor/model/binary.hpp"
#include "predictor/model/gaussian_process.hpp"
#include "predictor/model/model.hpp"
#include "predictor/model/times.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// A program on a device.
struct Asked {
  const Program& program;
  const Task& task;
  const DeviceInfo& device;

  [[nodiscard]] bool on_gpu() const { return !program.kernels.empty(); }
};

Asked asked(const Dataset& data, const std::vector<DeviceInfo>& devices, const Query& query) {
  return {data.programs[query.program], data.task_of(query), devices[query.device]};
}

/// The fitted times of programs for a GPU.
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

/// Labels of programs for a GPU, or of the others; those to tune with, too.
std::vector<Label> labels_of(const Lesson& lesson, bool gpu) {
  std::vector<Label> found;
  for (const auto labels : {lesson.train, lesson.tune}) {
    for (const Label& label : labels) {
      const bool on_gpu = !lesson.data.programs[label.query.program].kernels.empty();
      if (on_gpu == gpu) found.push_back(label);
    }
  }
  return found;
}

class AnalyticModel : public LatencyModel {
 public:
  explicit AnalyticModel(std::uint64_t seed) : seed_(seed) {}

  void fit(const Lesson& lesson) override { analytic_.fit(lesson, labels_of(lesson, true), seed_); }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    std::vector<double> seconds;
    for (const Query& query : queries) {
      const Asked about = asked(data, devices, query);
      seconds.push_back(about.on_gpu() ? std::exp(analytic_.model.log_seconds(
                                             busy_times(about.program, about.task, about.device)))
                                       : kUnknown);
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
    source_.reset();
    cpu_.reset();
    if (const auto labels = labels_of(lesson, true); !labels.empty()) {
      analytic_.fit(lesson, labels, seed_);
      source_ = learn(lesson, labels, false);
      std::vector<Label> known;
      std::ranges::copy_if(labels, std::back_inserter(known), [&](const Label& label) {
        return lesson.data.programs[label.query.program].compiled.has_value();
      });
      if (!known.empty()) compiled_ = learn(lesson, known, true);
    }
    if (const auto labels = labels_of(lesson, false); !labels.empty()) {
      cpu_ = learn(lesson, labels, false);
    }
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    std::vector<double> seconds;
    for (const Query& query : queries) seconds.push_back(predict(asked(data, devices, query)));
    return seconds;
  }

  [[nodiscard]] json saved() const override {
    json parts{{"analytic", analytic_.saved()}};
    if (compiled_) parts["compiled"] = compiled_->to_json();
    if (source_) parts["source"] = source_->to_json();
    if (cpu_) parts["cpu"] = cpu_->to_json();
    return parts;
  }

  void restore(const json& saved) override {
    analytic_.restore(saved.at("analytic"));
    const auto take = [&saved](const char* name) {
      return saved.contains(name) ? std::optional(GaussianProcess::of(saved.at(name)))
                                  : std::nullopt;
    };
    compiled_ = take("compiled");
    source_ = take("source");
    cpu_ = take("cpu");
  }

 private:
  /// What is subtracted from the logarithm of the time before anything is learned.
  [[nodiscard]] double base_of(const Asked& about, const Times& times) const {
    return about.on_gpu() ? analytic_.model.log_seconds(times) : 0;
  }

  [[nodiscard]] static std::vector<double> row_of(const Asked& about, const Times& times,
                                                  double base, bool compiled) {
    std::vector<double> row;
    if (about.on_gpu()) {
      row = shape_of(about.program, about.task, about.device, compiled);
      row.push_back(base);
      // Each part as a share of the whole; a clock where it has nothing to do.
      const double clock = 1e-6 / about.device.clock_mhz;
      for (const double time : times) row.push_back(std::log2(time + clock) - base / std::log(2.0));
      return row;
    }
    row.assign(about.program.stores.begin(), about.program.stores.end());
    row.push_back(static_cast<double>(about.program.leaves));
    row.push_back(std::log2(1 + about.task.flop));
    row.push_back(std::log2(1 + about.task.bytes));
    for (const float number : device_numbers(about.device)) row.push_back(number);
    return row;
  }

  [[nodiscard]] GaussianProcess learn(const Lesson& lesson, const std::vector<Label>& labels,
                                      bool compiled) const {
    std::vector<std::vector<double>> rows;
    std::vector<double> targets;
    for (const Label& label : labels) {
      const Asked about = asked(lesson.data, lesson.devices, label.query);
      const Times times = busy_times(about.program, about.task, about.device);
      const double base = base_of(about, times);
      rows.push_back(row_of(about, times, base, compiled));
      targets.push_back(std::log(label.seconds) - base);
    }
    GaussianProcess learned;
    learned.fit(rows, targets, seed_);
    return learned;
  }

  [[nodiscard]] double predict(const Asked& about) const {
    const bool compiled = about.program.compiled.has_value() && compiled_.has_value();
    const auto& process = !about.on_gpu() ? cpu_ : compiled ? compiled_ : source_;
    if (!process) return kUnknown;
    const Times times = busy_times(about.program, about.task, about.device);
    const double base = base_of(about, times);
    return std::exp(base + process->predict(row_of(about, times, base, compiled)));
  }

  std::uint64_t seed_;
  Analytic analytic_;
  std::optional<GaussianProcess> compiled_;
  std::optional<GaussianProcess> source_;
  std::optional<GaussianProcess> cpu_;
};

}  // namespace

std::unique_ptr<LatencyModel> make_gaussian(std::uint64_t seed) {
  return std::make_unique<Gaussian>(seed);
}
std::unique_ptr<LatencyModel> make_analytic(std::uint64_t seed) {
  return std::make_unique<AnalyticModel>(seed);
}

}  // namespace sluice::predictor
