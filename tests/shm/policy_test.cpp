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

// An experiment with a misread policy is worthless.
TEST(Policy, RefusesOtherText) {
  for (const char* text : {"",
                           "None",
                           "gates",
                           "gat",
                           "gate:",
                           "gate:1",
                           "none:0",
                           "sync",
                           "sync:",
                           "sync:0",
                           "sync:-1",
                           "sync:+1",
                           "sync: 1",
                           "sync:1 ",
                           " sync:1",
                           "sync:1x",
                           "sync:1:2",
                           "sync:0x10",
                           "sync:1.5",
                           "device:us",
                           "device:0us",
                           "device:2ms",
                           "device:200 us",
                           "event:2us",
                           "device:1000001",
                           "device:4294967297",
                           "device:99999999999999999999",
                           ":4",
                           "device;4",
                           "device:200us,",
                           "device:200us,ahead:2",
                           "device:200us,ahead:0ms",
                           "device:200us,ahead:ms",
                           "device:200us,ahead:-2ms",
                           "device:200us,ahead:2s",
                           "device:200us,ahead:2ms,",
                           "device:200us,ahead:2ms,ahead:2ms",
                           "device:200us,ahead:1001ms",
                           "device:200us, ahead:2ms",
                           "device:4,ahead:2ms",
                           "gate,ahead:2ms"}) {
    EXPECT_FALSE(parse_policy(text)) << '"' << text << '"';
  }
}

TEST(Policy, SurvivesTextAndWord) {
  for (const char* text :
       {"none", "gate", "sync:1", "event:2", "device:1000000", "device:200us",
        "device:200us,ahead:2ms", "device:1000000us,ahead:1000ms", "device:50us,ahead:1500us"}) {
    const Policy policy = parse_policy(text).value();
    EXPECT_EQ(to_string(policy), text);
    EXPECT_EQ(Policy::unpack(policy.pack()), policy);
  }
}

// A board of a later build may contain a policy kind that this program does not know.
TEST(Policy, UnknownKindHasAText) {
  EXPECT_EQ(to_string(Policy::unpack(std::uint64_t{200} << 32U)), "unknown");
}

}  // namespace
}  // namespace sluice::shm
