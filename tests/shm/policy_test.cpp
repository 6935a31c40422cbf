#include "shm/policy.hpp"

#include <gtest/gtest.h>

namespace sluice::shm {
namespace {

TEST(Policy, ReadsEveryForm) {
  EXPECT_EQ(parse_policy("none"), (Policy{PolicyKind::kNone}));
  EXPECT_EQ(parse_policy("gate"), (Policy{PolicyKind::kGate}));
  EXPECT_EQ(parse_policy("sync:1"), (Policy{PolicyKind::kSync, Spacing::launches(1)}));
  EXPECT_EQ(parse_policy("event:2"), (Policy{PolicyKind::kEvent, Spacing::launches(2)}));
  EXPECT_EQ(parse_policy("device:4"), (Policy{PolicyKind::kDevice, Spacing::launches(4)}));
  EXPECT_EQ(parse_policy("device:200us"),
            (Policy{PolicyKind::kDevice, Spacing::microseconds(200)}));
  EXPECT_EQ(parse_policy("device:1000000"),
            (Policy{PolicyKind::kDevice, Spacing::launches(Spacing::kMax)}));
  EXPECT_EQ(parse_policy("device:200us,ahead:2ms"),
            (Policy{PolicyKind::kDevice, Spacing::microseconds(200), 2000}));
  EXPECT_EQ(parse_policy("device:1us,ahead:500us")->ahead_ns(), 500'000U);
}

// A board of a later build may contain a policy kind that this program does not know.
TEST(Policy, UnknownKindHasAText) {
  EXPECT_EQ(to_string(Policy::unpack(std::uint64_t{200} << 32U)), "unknown");
}

}  // namespace
}  // namespace sluice::shm
