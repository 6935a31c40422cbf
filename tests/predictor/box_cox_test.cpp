// A wrong transformation of the times trains every model for the wrong thing, and nobody sees it.
#include "predictor/math/box_cox.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace sluice::predictor {
namespace {

const std::vector<double> kSample{12.5, 3.1, 250.0, 41.0, 7.7, 1033.0, 88.0, 19.2, 560.0, 5.4};

std::vector<double> seconds() {
  std::vector<double> found;
  for (const double us : kSample) found.push_back(us * 1e-6);
  return found;
}

// scipy 1.17.1: scipy.stats.boxcox(kSample).
TEST(BoxCox, FindsTheLambdaOfScipy) {
  EXPECT_NEAR(box_cox_lambda(kSample), -0.12217056, 1e-6);
  const std::vector<double> narrow{1.0, 1.1, 1.25, 1.4, 2.0, 2.2, 2.9, 3.0};
  EXPECT_NEAR(box_cox_lambda(narrow), -0.24115562, 1e-6);
}

TEST(BoxCox, TransformsAsScipyDoes) {
  EXPECT_NEAR(box_cox(2, 0.3), 0.77048138, 1e-8);
  EXPECT_NEAR(box_cox(7, -0.5), 1.24407105, 1e-8);
  EXPECT_NEAR(box_cox(7, 0), 1.94591015, 1e-8);
  EXPECT_NEAR(box_cox(7, 1e-12), 1.94591015, 1e-8);
  EXPECT_NEAR(box_cox(7, 1), 6, 1e-12);
}

TEST(LabelScale, HasTheMeanAndDeviationOfScipy) {
  const LabelScale scale(LabelScale::Kind::kBoxCox, seconds());
  EXPECT_NEAR(scale.mean(), 2.857708864, 1e-6);
  EXPECT_NEAR(scale.deviation(), 1.190122439, 1e-6);
}

TEST(LabelScale, TheShortestTimeHasLabelOne) {
  for (const auto kind :
       {LabelScale::Kind::kBoxCox, LabelScale::Kind::kLog, LabelScale::Kind::kNone}) {
    const LabelScale scale(kind, seconds());
    EXPECT_NEAR(scale.to_label(3.1e-6), 1, 1e-9) << to_text(kind);
    EXPECT_GT(scale.to_label(5.4e-6), 1) << to_text(kind);
  }
}

TEST(LabelScale, SecondsSurviveTheWayThereAndBack) {
  for (const auto kind :
       {LabelScale::Kind::kBoxCox, LabelScale::Kind::kLog, LabelScale::Kind::kNone}) {
    const LabelScale scale(kind, seconds());
    for (const double s : {3.1e-6, 5e-5, 1e-3}) {
      EXPECT_NEAR(scale.to_seconds(scale.to_label(s)) / s, 1, 1e-9) << to_text(kind);
    }
  }
}

// A network may predict any label: a time that is negative or not a number would spoil every sum.
TEST(LabelScale, LabelsOutOfReachGiveTimesThatCanBeUsed) {
  for (const auto kind :
       {LabelScale::Kind::kBoxCox, LabelScale::Kind::kLog, LabelScale::Kind::kNone}) {
    const LabelScale scale(kind, seconds());
    for (const double label : {-1e3, -3.0, 40.0, 1e4}) {
      const double s = scale.to_seconds(label);
      EXPECT_TRUE(std::isfinite(s) && s > 0) << to_text(kind) << " " << label << " " << s;
    }
    EXPECT_LT(scale.to_seconds(-3), scale.to_seconds(40)) << to_text(kind);
    // 3.1 us and 1.033 ms, four times beyond.
    EXPECT_NEAR(scale.to_seconds(-1e3), 3.1e-6 / 4, 1e-12) << to_text(kind);
    EXPECT_NEAR(scale.to_seconds(1e4), 1033e-6 * 4, 1e-12) << to_text(kind);
  }
}

TEST(LabelScale, ASlowerDeviceMakesRoom) {
  LabelScale scale(LabelScale::Kind::kLog, seconds());
  const std::vector<double> slower{0.5};
  scale.widen(slower);
  EXPECT_NEAR(scale.to_seconds(scale.to_label(0.5)), 0.5, 1e-9);
}

TEST(LabelScale, RefusesWhatCannotBeLearned) {
  const std::vector<double> equal{1e-5, 1e-5};
  const std::vector<double> negative{1e-5, -1e-5};
  EXPECT_THROW(LabelScale(LabelScale::Kind::kBoxCox, equal), base::UsageError);
  EXPECT_THROW(LabelScale(LabelScale::Kind::kBoxCox, negative), base::UsageError);
  EXPECT_THROW((void)label_kind("square"), base::UsageError);
}

}  // namespace
}  // namespace sluice::predictor
