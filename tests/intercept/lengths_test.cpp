// What is known of how long launches take.
#include "intercept/lengths.hpp"

#include <gtest/gtest.h>

namespace sluice::intercept {
namespace {

Work kernel(std::uintptr_t function, unsigned blocks = 1, unsigned shared_bytes = 0) {
  Work work;
  work.function = reinterpret_cast<CUfunction>(function);
  work.grid = {blocks, 1, 1};
  work.shared_bytes = shared_bytes;
  return work;
}

TEST(Lengths, UnknownIsLongerThanAnySpacing) {
  Lengths lengths;
  EXPECT_FALSE(lengths.find(kernel(1))->known());
  EXPECT_EQ(lengths.find(kernel(1))->ns(), Length::kUnbounded);
}

// One key for two shapes would take the length of the short one for that of the long one.
TEST(Lengths, FunctionShapeAndSharedMemoryTellLaunchesApart) {
  Lengths lengths;
  Length* const length = lengths.find(kernel(1));
  EXPECT_EQ(lengths.find(kernel(1)), length);
  EXPECT_NE(lengths.find(kernel(2)), length);
  EXPECT_NE(lengths.find(kernel(1, 2)), length);
  EXPECT_NE(lengths.find(kernel(1, 1, 16)), length);
  Work turned = kernel(1);
  turned.block = {1, 1, 2};
  EXPECT_NE(lengths.find(turned), length);
}

TEST(Lengths, TheGreatestOfTheLastSamplesCounts) {
  Lengths lengths;
  Length& length = *lengths.find(kernel(1));
  length.add_sample(50'000);
  length.add_sample(70'000);
  length.add_sample(60'000);
  EXPECT_EQ(length.ns(), 70'000U);
  for (std::size_t i = 0; i < Length::kSamples; ++i) length.add_sample(55'000);
  EXPECT_EQ(length.ns(), 55'000U) << "an old sample still counts";
}

// A persistent kernel has one grid for problems of every size.
TEST(Lengths, SamplesThatDifferSayNothing) {
  Lengths lengths;
  Length& length = *lengths.find(kernel(1));
  EXPECT_FALSE(length.add_sample(50'000));
  EXPECT_TRUE(length.add_sample(101'000)) << "that they differ is told";
  EXPECT_FALSE(length.add_sample(101'000)) << "once";
  EXPECT_EQ(length.ns(), Length::kUnbounded);
  EXPECT_EQ(length.longest_ns(), 101'000U) << "what needs a guess gets the greatest";
  EXPECT_TRUE(length.known());
  EXPECT_TRUE(length.wants_samples()) << "one wrong sample would count for very long";
  for (std::size_t i = 0; i < Length::kSamples; ++i) length.add_sample(101'000);
  EXPECT_EQ(length.ns(), 101'000U);
}

// Of short kernels the measurement itself differs by more than 2 x.
TEST(Lengths, ShortKernelsMayDiffer) {
  Lengths lengths;
  Length& length = *lengths.find(kernel(1));
  length.add_sample(2'000);
  length.add_sample(9'000);
  EXPECT_EQ(length.ns(), 9'000U);
}

// Two captures of the same code must get the same nodes, whatever was learned between them.
TEST(Lengths, WhatACaptureWasToldDoesNotChange) {
  Lengths lengths;
  Length& length = *lengths.find(kernel(1));
  length.add_sample(50'000);
  EXPECT_EQ(length.frozen().ns, 50'000U);
  length.add_sample(90'000);
  EXPECT_EQ(length.ns(), 90'000U);
  EXPECT_EQ(length.frozen().ns, 50'000U);
  Length& unknown = *lengths.find(kernel(2));
  EXPECT_EQ(unknown.frozen().ns, Length::kUnbounded);
  unknown.add_sample(1'000);
  EXPECT_EQ(unknown.frozen().ns, Length::kUnbounded);
}

// The driver gives handles of destroyed graphs out again.
TEST(Lengths, AnotherGraphUnderTheSameHandleIsUnknown) {
  Lengths lengths;
  Work work;
  work.graph = reinterpret_cast<CUgraphExec>(0x10);
  lengths.find(work)->add_sample(1'000);
  lengths.renew(work.graph, true);
  EXPECT_FALSE(lengths.find(work)->known());
  EXPECT_EQ(lengths.find(work)->ns(), Length::kUnbounded);
  EXPECT_TRUE(lengths.find(work)->preemptible());
}

TEST(Lengths, TooManyKindsAreNotKept) {
  Lengths lengths;
  std::size_t kept = 0;
  for (std::uintptr_t i = 1; i <= 20'000; ++i) kept += lengths.find(kernel(i)) != nullptr ? 1 : 0;
  EXPECT_GT(kept, 6000U);
  EXPECT_LE(kept, 8192U);
}

}  // namespace
}  // namespace sluice::intercept
