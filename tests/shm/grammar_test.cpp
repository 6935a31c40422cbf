#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "shm/give.hpp"
#include "shm/memory_limit.hpp"
#include "shm/policy_text.hpp"
#include "shm/target.hpp"

/// tests/python/test_grammar.py answers the same table.
namespace sluice::shm {
namespace {

nlohmann::json table() { return nlohmann::json::parse(std::ifstream(SLUICE_GRAMMAR_TABLE)); }

// Prevents: a typo that is taken for a policy or a target, and a text that the Python tools refuse
// or understand as another one. An experiment with a misread policy is worthless.
TEST(Policy, IsReadAndWrittenAsTheTableSays) {
  for (const auto& [text, canonical] : table().at("policies").items()) {
    const auto policy = parse_policy(text);
    EXPECT_EQ(policy ? nlohmann::json(to_string(*policy)) : nlohmann::json(), canonical) << text;
    EXPECT_TRUE(!policy || Policy::unpack(policy->pack()) == *policy) << text;
    EXPECT_EQ(check_policy(text).find(kPolicyForms) == std::string::npos, policy.has_value());
  }
}

TEST(Target, IsReadAndWrittenAsTheTableSays) {
  for (const auto& [text, canonical] : table().at("targets").items()) {
    const auto target = parse_target(text);
    EXPECT_EQ(target ? nlohmann::json(to_string(*target)) : nlohmann::json(), canonical) << text;
    EXPECT_TRUE(!target || Target::unpack(target->pack()) == *target) << text;
    EXPECT_EQ(check_target(text).find(kTargetForms) == std::string::npos, target.has_value());
  }
}

TEST(MemoryLimit, IsReadAsTheTableSays) {
  for (const auto& [text, bytes] : table().at("memory").items()) {
    const auto limit = parse_memory_limit(text);
    EXPECT_EQ(limit ? nlohmann::json(*limit) : nlohmann::json(), bytes) << text;
  }
}

TEST(Give, IsReadAsTheTableSays) {
  for (const auto& [text, per_mille] : table().at("give").items()) {
    const auto give = parse_give(text);
    EXPECT_EQ(give ? nlohmann::json(*give) : nlohmann::json(), per_mille) << text;
  }
}

}  // namespace
}  // namespace sluice::shm
