#include "tools/exec/environment.hpp"

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

// A path twice in LD_PRELOAD is loaded once but searched for twice, and grows with every nesting.
TEST(Environment, APathStandsInFrontAndOnlyOnce) {
  EXPECT_EQ(with_in_front("", "/a.so", ": "), "/a.so");
  EXPECT_EQ(with_in_front("/b.so", "/a.so", ": "), "/a.so:/b.so");
  EXPECT_EQ(with_in_front("/b.so /a.so:/c.so", "/a.so", ": "), "/a.so:/b.so:/c.so");
  EXPECT_EQ(with_in_front("/a.so:/a.so", "/a.so", ": "), "/a.so");
}

// Somebody else's entries are theirs: only whole paths are taken out.
TEST(Environment, OnlyTheWholePathIsTakenOut) {
  EXPECT_EQ(without("/lib/sim:/lib/sim2:/x", "/lib/sim", ":"), "/lib/sim2:/x");
  EXPECT_EQ(without("/lib/sim", "/lib/sim", ":"), "");
  EXPECT_EQ(without("/x y:/z", "/x", ":"), "/x y:/z");
}

}  // namespace
}  // namespace sluice::tools
