// The line that turns a grant into a micro-batch size. A wrong one makes allocations fail, or makes
// a training slower than its memory allows. tests/python/test_memory_fit.py has the same cases.
#include "engine/train/memory_fit.hpp"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

TEST(MemoryFit, IsFittedToWhatMicroBatchesAdded) {
  MemoryFit line;
  EXPECT_FALSE(line.fit());
  EXPECT_EQ(line.to_measure(16), 1U);
  line.saw(1, 100, 9000);  // what libraries allocate once does not count
  EXPECT_FALSE(line.fit());
  EXPECT_EQ(line.to_measure(16), 1U);
  line.saw(1, 100, 130);
  EXPECT_EQ(line.fit(), (MemoryFit::Line{100, 30}));
  EXPECT_EQ(line.to_measure(16), 8U);
  line.saw(8, 100, 270);
  EXPECT_EQ(line.fit(), (MemoryFit::Line{110, 20}));
  EXPECT_FALSE(line.to_measure(16));
  line.saw(15, 100, 410);
  EXPECT_EQ(line.fit(), (MemoryFit::Line{110, 20}));
}

TEST(MemoryFit, GrowsWithTheStateOfTheOptimizerAndWithItsSteps) {
  MemoryFit line;
  for (const std::size_t items : {1, 1, 8}) line.saw(items, 100, 110 + 20 * items);
  line.batch_ended();
  line.saw(8, 300, 470);
  EXPECT_EQ(line.fit(), (MemoryFit::Line{310, 20}));
  line.saw_outside(1330);
  EXPECT_EQ(line.fit(), (MemoryFit::Line{1310, 20}));
}

// Prevents: a trainer in Python and one in C++ that need different memory for the same work.
TEST(MemoryFit, HalvesRoundUp) {
  MemoryFit line;
  line.saw(1, 100, 100);
  line.saw(2, 100, 105);
  EXPECT_EQ(line.fit(), (MemoryFit::Line{100, 3}));
  line.saw(4, 100, 108);
  EXPECT_EQ(line.fit(), (MemoryFit::Line{101, 2}));
}

TEST(MemoryFit, ForgetsWhatWasResidentTwoBatchesAgo) {
  MemoryFit line;
  for (const std::size_t items : {1, 1, 8}) line.saw(items, 500, 510 + 20 * items);
  line.batch_ended();
  line.saw(8, 100, 270);
  EXPECT_EQ(line.fit()->base, 510U);
  line.batch_ended();
  EXPECT_EQ(line.fit()->base, 110U);
  line.batch_ended();  // not measured
  EXPECT_EQ(line.fit()->base, 110U);
}

TEST(MemoryFit, SizesAreFewAndWithinTheGrant) {
  MemoryFit line;
  EXPECT_EQ(line.items(5, 64), 64U);  // nothing is known
  for (const std::size_t items : {1, 1, 32}) line.saw(items, 1000, 1000 + 10 * items);
  EXPECT_EQ(line.items(SLUICE_NO_LIMIT, 64), 64U);
  EXPECT_EQ(line.items(1639, 64), 60U);
  EXPECT_EQ(line.items(1640, 64), 64U);
  EXPECT_EQ(line.items(1035, 64), 3U);
  EXPECT_EQ(line.items(1009, 64), 0U);
  EXPECT_EQ(line.items(0, 64), 0U);
  line.doubt(1005);
  EXPECT_EQ(line.items(1004, 64), 0U);
  EXPECT_EQ(line.items(1005, 64), 1U);
  line.lacked_memory(1, 1005);
  EXPECT_EQ(line.items(1005, 64), 0U);
  line.doubt(1005);
  EXPECT_EQ(line.items(1005, 64), 1U);
}

TEST(MemoryFit, AFailedAllocationLowersTheSizeUntilTheGrantGrows) {
  MemoryFit line;
  for (const std::size_t items : {1, 1, 32}) line.saw(items, 1000, 1000 + 10 * items);
  line.lacked_memory(60, 1639);
  EXPECT_EQ(line.items(1639, 64), 45U);
  EXPECT_EQ(line.items(1640, 64), 64U);
  EXPECT_EQ(line.items(1639, 64), 60U);
  line.lacked_memory(1, 1639);
  EXPECT_EQ(line.items(1639, 64), 0U);
}

// Prevents: a training that lacked memory for one item, as its first one, never tries again.
TEST(MemoryFit, AFirstItemThatFailedIsTriedAgain) {
  MemoryFit line;
  line.lacked_memory(1, 1000);
  EXPECT_EQ(line.items(1000, 64), 0U);
  EXPECT_EQ(line.items(999, 64), 0U);
  line.doubt(1000);
  EXPECT_EQ(line.items(999, 64), 0U);
  EXPECT_EQ(line.items(1000, 64), 1U);
}

}  // namespace
}  // namespace sluice::engine
