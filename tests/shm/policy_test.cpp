#include "shm/policy.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// Prevents: a kind that somebody adds and that parse_policy() does not read, or whose spacing is
// lost on the board.
TEST(Policy, EachKindIsReadAndPackedAsItIsWritten) {
  for (std::size_t i = 0; i < kPolicyKinds; ++i) {
    const auto kind = static_cast<PolicyKind>(i);
    const PolicyTraits traits = traits_of(kind);
    const std::string name(traits.name);
    std::vector<Policy> policies;
    if (traits.between == Between::kNothing) {
      policies = {{kind}};
    } else {
      policies.push_back({kind, Spacing::launches(7)});
      if (traits.spaces_by_time) policies.push_back({kind, Spacing::microseconds(7)});
      EXPECT_FALSE(parse_policy(name)) << "no spacing";
    }
    for (const Policy& policy : policies) {
      EXPECT_TRUE(policy.valid()) << name;
      EXPECT_EQ(to_string(policy).substr(0, name.size()), name);
      EXPECT_EQ(parse_policy(to_string(policy)), policy);
      EXPECT_EQ(Policy::unpack(policy.pack()), policy);
    }
    EXPECT_EQ(parse_policy(name + ":7us").has_value(), traits.spaces_by_time) << name;
    EXPECT_EQ(parse_policy(name + ":7").has_value(), policies[0].is_spaced()) << name;
  }
  EXPECT_FALSE(Policy{static_cast<PolicyKind>(kPolicyKinds)}.valid());
}

// Prevents: the host is held under a policy whose waits are on the GPU, or not under one of those
// that the paper has.
TEST(Policy, SaysWhoStopsAtTheGate) {
  for (const char* text : {"gate", "sync:1", "event:2"}) {
    EXPECT_TRUE(parse_policy(text)->holds_on_host()) << text;
    EXPECT_FALSE(parse_policy(text)->waits_on_device()) << text;
  }
  EXPECT_FALSE(parse_policy("none")->heeds_gate());
  EXPECT_FALSE(parse_policy("none")->holds_on_host());
  EXPECT_TRUE(kDefaultPolicy.heeds_gate() && kDefaultPolicy.waits_on_device());
  EXPECT_FALSE(kDefaultPolicy.holds_on_host());
  EXPECT_TRUE(Policy{static_cast<PolicyKind>(kPolicyKinds)}.heeds_gate()) << "of a later build";
}

// A board of a later build may contain a policy kind that this program does not know.
TEST(Policy, UnknownKindHasAText) {
  EXPECT_EQ(to_string(Policy::unpack(std::uint64_t{200} << 32U)), "unknown");
}

}  // namespace
}  // namespace sluice::shm
