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

}  // namespace
}  // namespace sluice::shm
