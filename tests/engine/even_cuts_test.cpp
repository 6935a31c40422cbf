// Blocks of a recording must be about even and never empty.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/recording/served_recording.hpp"

namespace sluice::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Recording recording(const std::vector<std::uint64_t>& durations) {
  Recording made;
  for (const std::uint64_t duration : durations) made.kernels.push_back({duration});
  return made;
}

TEST(EvenCuts, HalvesTheDurationNotTheNumberOfKernels) {
  EXPECT_THAT(even_cuts(recording({10, 10, 10, 10}), 2), ElementsAre(2));
  EXPECT_THAT(even_cuts(recording({30, 10, 10, 10}), 2), ElementsAre(1));
  EXPECT_THAT(even_cuts(recording({10, 10, 10, 10, 10, 10}), 3), ElementsAre(2, 4));
}

TEST(EvenCuts, LeavesAKernelForEachBlock) {
  EXPECT_THAT(even_cuts(recording({1, 1, 100}), 3), ElementsAre(1, 2));
  EXPECT_THAT(even_cuts(recording({100, 1, 1}), 3), ElementsAre(1, 2));
  EXPECT_THAT(even_cuts(recording({5, 5}), 4), ElementsAre(1));
  EXPECT_THAT(even_cuts(recording({5}), 4), IsEmpty());
  EXPECT_THAT(even_cuts(recording({5, 5}), 0), IsEmpty());
}

}  // namespace
}  // namespace sluice::engine
