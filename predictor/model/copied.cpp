#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "predictor/model/gaussian_process.hpp"
#include "predictor/model/model.hpp"
#include "predictor/model/times.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;

/// From the label of the same program on another device, which has been measured.
class Copied : public LatencyModel {
 public:
  void fit(const Lesson& lesson) override {
    std::map<std::size_t, std::size_t> counts;
    for (const Label& label : lesson.train) ++counts[label.query.device];
    const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
    source_ = lesson.data.devices[most->first];
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& /*devices*/,
                                            std::span<const Query> queries) const override {
    const auto known = times_on_source(data);
    std::vector<double> seconds;
    for (const Query& query : queries) {
      const auto found = known.find(query.program);
      // Its own label would be the answer.
      const bool own = data.devices[query.device] == source_;
      seconds.push_back(found == known.end() || own ? std::numeric_limits<double>::quiet_NaN()
                                                    : found->second);
    }
    return seconds;
  }
  [[nodiscard]] json saved() const override { return {{"source", source_}}; }
  void restore(const json& saved) override { saved.at("source").get_to(source_); }

  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  [[nodiscard]] std::map<std::size_t, double> times_on_source(const Dataset& data) const {
    std::map<std::size_t, double> known;
    for (const Label& label : data.labels) {
      if (data.devices[label.query.device] == source_) known[label.query.program] = label.seconds;
    }
    return known;
  }

  std::string source_;
};

class Ratio : public LatencyModel {
 public:
  explicit Ratio(std::uint64_t seed) : seed_(seed) {}

  void fit(const Lesson& lesson) override {
    copied_.fit(lesson);
    learned_.reset();
    const auto queries = queries_of(lesson.tune);
    const auto known = copied_.predict(lesson.data, lesson.devices, queries);
    std::vector<std::vector<double>> rows;
    std::vector<double> targets;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (std::isnan(known[i])) continue;
      rows.push_back(row_of(lesson.data, lesson.devices, queries[i], known[i]));
      targets.push_back(std::log(lesson.tune[i].seconds / known[i]));
    }
    if (rows.empty()) return;
    learned_.emplace().fit(rows, targets, seed_);
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    auto seconds = copied_.predict(data, devices, queries);
    for (std::size_t i = 0; i < seconds.size() && learned_; ++i) {
      if (std::isnan(seconds[i])) continue;
      const auto row = row_of(data, devices, queries[i], seconds[i]);
      seconds[i] *= std::exp(learned_->predict(row).value);
    }
    return seconds;
  }

  [[nodiscard]] json saved() const override {
    json parts{{"copied", copied_.saved()}};
    if (learned_) parts["learned"] = learned_->to_json();
    return parts;
  }
  void restore(const json& saved) override {
    copied_.restore(saved.at("copied"));
    learned_.reset();
    if (saved.contains("learned")) learned_ = GaussianProcess::of(saved.at("learned"));
  }

 private:
  /// The time that is known, and what the program is on the other device.
  [[nodiscard]] static std::vector<double> row_of(const Dataset& data,
                                                  const std::vector<DeviceInfo>& devices,
                                                  const Query& query, double known) {
    const Program& program = data.programs[query.program];
    const Task& task = data.task_of(query);
    const DeviceInfo& device = devices[query.device];
    std::vector<double> row{std::log2(known)};
    const auto shape = shape_of(program, task, device, false);
    row.insert(row.end(), shape.begin(), shape.end());
    for (const double time : busy_times(program, task, device)) {
      row.push_back(std::log2((time + 1e-9) / known));
    }
    return row;
  }

  std::uint64_t seed_;
  Copied copied_;
  std::optional<GaussianProcess> learned_;
};

}  // namespace

std::unique_ptr<LatencyModel> make_copied() { return std::make_unique<Copied>(); }
std::unique_ptr<LatencyModel> make_ratio(std::uint64_t seed) {
  return std::make_unique<Ratio>(seed);
}

}  // namespace sluice::predictor
