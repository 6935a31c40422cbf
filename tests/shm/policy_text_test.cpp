#include "shm/policy_text.hpp"

#include <gtest/gtest.h>

namespace sluice::shm {
namespace {

TEST(PolicyText, SuggestsTheNearestPolicy) {
  EXPECT_EQ(check_policy("device:4"), "");
  const auto expect_meant = [](const char* text, const char* meant) {
    const std::string said = check_policy(text);
    EXPECT_NE(said.find("did you mean '" + std::string(meant) + "'?"), std::string::npos) << said;
  };
  expect_meant("devise:8", "device:8");
  expect_meant("devise:50us", "device:50us");
  expect_meant("device", "device:200us");
  expect_meant("device:0", "device:200us");
  expect_meant("event", "event:4");
  expect_meant("gates", "gate");
  expect_meant("gate:3", "gate");
  expect_meant("nome", "none");
  EXPECT_EQ(check_policy("fast").find("did you mean"), std::string::npos);
}

// Prevents: "did you mean 'device:200us'?" as the only word on a unit or a number.
TEST(PolicyText, SaysWhatIsWrongWithANumber) {
  const auto expect_said = [](const char* text, const std::string& end) {
    EXPECT_TRUE(check_policy(text).ends_with("1-1000000, A 1-1000)" + end)) << check_policy(text);
  };
  expect_said("device:200ms", "; the unit is us; did you mean 'device:200000us'?");
  expect_said("device:200ns", "; the unit is us; did you mean 'device:200us'?");
  expect_said("device:0us", "; T is at least 1; did you mean 'device:200us'?");
  expect_said("event:0", "; N is at least 1; did you mean 'event:4'?");
  expect_said("sync:1000001", "; N is at most 1000000; did you mean 'sync:4'?");
  EXPECT_TRUE(policy_hint("device:2s", '"').ends_with("did you mean \"device:200us\"?"));
}

// Prevents: 200 launches between two waits where 200 microseconds were meant.
TEST(PolicyText, WarnsOfAnAmountWithoutItsUnit) {
  const auto warning_of = [](const char* text) { return policy_warning(*parse_policy(text)); };
  EXPECT_EQ(warning_of("device:200"),
            "device:200 waits once in 200 launches; did you mean device:200us (microseconds)?");
  for (const char* usual : {"device:64", "device:200us", "event:200", "none"}) {
    EXPECT_EQ(warning_of(usual), "") << usual;
  }
}

}  // namespace
}  // namespace sluice::shm
