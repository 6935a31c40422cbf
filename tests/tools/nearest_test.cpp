#include "tools/common/nearest.hpp"

#include <gtest/gtest.h>

#include <array>

namespace sluice::tools {
namespace {

constexpr std::array<std::string_view, 4> kWords{"exec", "status", "run", "gpus"};

// A suggestion for every slip of the fingers, and none for a word that means something else.
TEST(Nearest, FindsSlipsAndOnlySlips) {
  EXPECT_EQ(nearest("stats", kWords), "status");
  EXPECT_EQ(nearest("gpsu", kWords), "gpus");
  EXPECT_EQ(nearest("ru", kWords), "run");
  EXPECT_EQ(nearest("exce", kWords), "exec");
  EXPECT_EQ(nearest("replicate", kWords), "");
  EXPECT_EQ(nearest("", kWords), "");
}

}  // namespace
}  // namespace sluice::tools
