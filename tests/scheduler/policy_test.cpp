#include "scheduler/policy.hpp"

#include <gtest/gtest.h>

namespace sluice::scheduler {
namespace {

TEST(PolicyNames, AreReadInAnyCase) {
  for (const Policy policy : kPolicies) EXPECT_EQ(parse_policy(to_string(policy)), policy);
  EXPECT_EQ(to_string(Policy::kParaller), "PARALLER");
  EXPECT_EQ(parse_policy("edf"), Policy::kEdf);
  EXPECT_EQ(parse_policy("Oyst"), Policy::kOyst);
}

// Prevents: a misspelt policy that silently becomes another one.
TEST(PolicyNames, AnythingElseIsUnknown) {
  for (const char* name : {"", "ED", "EDFX", "FIFO ", "PARALLEL"}) {
    EXPECT_EQ(parse_policy(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace sluice::scheduler
