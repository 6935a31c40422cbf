#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/statistics.hpp"
#include "predictor/baselines/model.hpp"

namespace sluice::predictor {
namespace {

class Mean : public LatencyModel {
 public:
  void fit(const Lesson& lesson) override {
    double sum = 0;
    const auto& labels = lesson.tune.empty() ? lesson.train : lesson.tune;
    for (const Label& label : labels) sum += std::log(label.seconds);
    seconds_ = std::exp(sum / static_cast<double>(labels.size()));
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& /*data*/,
                                            const std::vector<DeviceInfo>& /*devices*/,
                                            std::span<const Query> queries) const override {
    return std::vector<double>(queries.size(), seconds_);
  }

 private:
  double seconds_ = 0;
};

/// Seconds that the device needs at its peaks.
double at_peak(const Task& task, const DeviceInfo& device) {
  return std::max(task.flop / (device.fp32_tflops * 1e12),
                  task.bytes / (device.bandwidth_gbs * 1e9)) +
         device.launch_us * 1e-6;
}

class Roofline : public LatencyModel {
 public:
  void fit(const Lesson& lesson) override {
    std::map<std::size_t, std::vector<double>> ratios;
    std::vector<double> all;
    for (const auto labels : {lesson.train, lesson.tune}) {
      for (const Label& label : labels) {
        const double ratio = label.seconds / at_peak(lesson.data.task_of(label.query),
                                                     lesson.devices[label.query.device]);
        ratios[label.query.device].push_back(ratio);
        all.push_back(ratio);
      }
    }
    for (auto& [device, of_device] : ratios) factors_[device] = base::percentile(of_device, 0.5);
    factor_ = base::percentile(all, 0.5);
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    std::vector<double> seconds;
    for (const Query& query : queries) {
      const auto factor = factors_.find(query.device);
      seconds.push_back((factor == factors_.end() ? factor_ : factor->second) *
                        at_peak(data.task_of(query), devices[query.device]));
    }
    return seconds;
  }

 private:
  std::map<std::size_t, double> factors_;
  double factor_ = 1;
};

/// From the label of the same program on another device.
class FromOther : public LatencyModel {
 public:
  explicit FromOther(bool scale) : scale_(scale) {}

  void fit(const Lesson& lesson) override {
    std::map<std::size_t, std::size_t> counts;
    for (const Label& label : lesson.train) ++counts[label.query.device];
    source_ = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->first;
    for (const Label& label : lesson.train) {
      if (label.query.device == source_) known_[label.query.program] = label.seconds;
    }
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    std::vector<double> seconds;
    for (const Query& query : queries) {
      const auto found = known_.find(query.program);
      if (found == known_.end()) {
        seconds.push_back(std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      const double factor =
          scale_ ? ratio(data.task_of(query), devices[source_], devices[query.device]) : 1;
      seconds.push_back(found->second * factor);
    }
    return seconds;
  }

 private:
  /// A weighted geometric mean of the two ratios: tasks far left of the ridge of the source wait
  /// for memory only, tasks far right of it compute only.
  static double ratio(const Task& task, const DeviceInfo& source, const DeviceInfo& target) {
    const double ridge = source.fp32_tflops * 1e12 / (source.bandwidth_gbs * 1e9);
    const double intensity = task.flop / task.bytes;
    const double computes =
        intensity < ridge ? 0.5 * intensity / ridge : 1 - 0.5 * ridge / intensity;
    return std::pow(source.bandwidth_gbs / target.bandwidth_gbs, 1 - computes) *
           std::pow(source.fp32_tflops / target.fp32_tflops, computes);
  }

  bool scale_;
  std::size_t source_ = 0;
  std::map<std::size_t, double> known_;
};

}  // namespace

std::unique_ptr<LatencyModel> make_mean() { return std::make_unique<Mean>(); }
std::unique_ptr<LatencyModel> make_roofline() { return std::make_unique<Roofline>(); }
std::unique_ptr<LatencyModel> make_copied() { return std::make_unique<FromOther>(false); }
std::unique_ptr<LatencyModel> make_scaling() { return std::make_unique<FromOther>(true); }

}  // namespace sluice::predictor
