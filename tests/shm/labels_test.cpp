#include "shm/labels.hpp"

#include <gtest/gtest.h>

#include "shm/board.hpp"

namespace sluice::shm {
namespace {

TEST(Labels, ReadsPairs) {
  const Labels expected{{"team", "vision"}, {"job", "4711"}, {"user_1", "a.b-c/d:e@f"}};
  EXPECT_EQ(parse_labels("team=vision,job=4711,user_1=a.b-c/d:e@f"), expected);
  EXPECT_TRUE(parse_labels("").empty());
}

// Prevents: a metrics page that no scraper reads, because a label has a name that Prometheus does
// not allow, has the same name as another, or has a quote inside.
TEST(Labels, RefusesWhatIsNoLabel) {
  EXPECT_EQ(check_labels(""), "");
  EXPECT_EQ(check_labels("team=vision,job=4711"), "");
  for (const char* text : {"team", "=vision", "team=", "a-b=c", "a=b=c", "a=b c", "a=\"", "a=b,",
                           ",a=b", "a=b,,c=d", "a=\n", "\xc3\xa4=b", "a=\xc3\xa4"}) {
    EXPECT_NE(check_labels(text).find("is not a label: KEY=VALUE"), std::string::npos) << text;
  }
  EXPECT_EQ(check_labels("a=1,b=2,a=3"), "the label a is given twice");
}

TEST(Labels, AllTogetherFitASlot) {
  const std::string longest = "a=" + std::string(kLabelSize - 3, 'x');
  EXPECT_EQ(check_labels(longest), "");
  EXPECT_EQ(check_labels(longest + "x"), "the labels are too long: 104 bytes, at most 103 in all");
}

// Prevents: text on a board that a broken client wrote ends up on the metrics page.
TEST(Labels, SkipsWhatIsNoLabelOnABoard) {
  const Labels expected{{"a", "1"}, {"c", "3"}};
  EXPECT_EQ(parse_labels("a=1,b,=2,x\"=1,y=\n,a=2,c=3,"), expected);
}

TEST(Labels, OneMoreUnlessItIsThereOrDoesNotFit) {
  EXPECT_EQ(with_label("", "job", "17"), "job=17");
  EXPECT_EQ(with_label("team=a", "job", "17"), "team=a,job=17");
  EXPECT_EQ(with_label("job=mine", "job", "17"), "job=mine");
  EXPECT_EQ(with_label("team=a", "job", "no id"), "team=a");
  EXPECT_EQ(with_label("team=a", "job", "17,owner=me"), "team=a");
  const std::string full = "a=" + std::string(kLabelSize - 3, 'x');
  EXPECT_EQ(with_label(full, "job", "17"), full);
}

}  // namespace
}  // namespace sluice::shm
