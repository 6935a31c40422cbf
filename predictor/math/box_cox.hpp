#pragma once
#include <span>
#include <string>
#include <vector>

namespace sluice::predictor {

/// How seconds become the number that a model learns: transformed, then with mean 0 and standard
/// deviation 1, then moved so that the least of the sample is 1, where relative errors are defined.
class LabelScale {
 public:
  enum class Kind { kBoxCox, kLog, kNone };

  LabelScale() = default;
  /// Learns from positive seconds, at least two of which differ. Throws base::UsageError otherwise.
  LabelScale(Kind kind, std::span<const double> seconds);
  /// As saved. `least` and `most`: the seconds of the sample.
  LabelScale(Kind kind, double lambda, double mean, double deviation, double shift, double least,
             double most);

  /// Makes room for times of another sample, as those of a slower device.
  void widen(std::span<const double> seconds);

  [[nodiscard]] double to_label(double seconds) const;
  /// The seconds of a label, at most four times beyond the sample: with a negative lambda, a label
  /// a little too high would mean hours.
  [[nodiscard]] double to_seconds(double label) const;

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] double lambda() const { return lambda_; }
  [[nodiscard]] double mean() const { return mean_; }
  [[nodiscard]] double deviation() const { return deviation_; }
  [[nodiscard]] double shift() const { return shift_; }
  [[nodiscard]] double least() const { return least_; }
  [[nodiscard]] double most() const { return most_; }

 private:
  Kind kind_ = Kind::kLog;
  double lambda_ = 0;
  double mean_ = 0;
  double deviation_ = 1;
  double shift_ = 0;
  double least_ = 0;
  double most_ = 0;
};

/// Box and Cox, "An analysis of transformations", 1964: (y^lambda - 1) / lambda, or log y.
[[nodiscard]] double box_cox(double y, double lambda);

/// The lambda in [-5, 5] under which the transformed sample is most likely normal.
[[nodiscard]] double box_cox_lambda(std::span<const double> sample);

[[nodiscard]] std::string to_text(LabelScale::Kind kind);
/// Throws base::UsageError for a word that is none of "boxcox", "log", "none".
[[nodiscard]] LabelScale::Kind label_kind(const std::string& word);

}  // namespace sluice::predictor
