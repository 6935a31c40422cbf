// Weights come back to the same address with the same bytes, and every failure on the way leaves no
// memory behind: a lost page would be lost to all models until the server ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "engine/memory/arena_weights.hpp"
#include "engine/out_of_memory.hpp"
#include "tests/engine/memory/fake_driver.hpp"

namespace sluice::engine {
namespace {

using test::FakeDriver;
using testing::ElementsAre;

constexpr std::uint64_t kMiB = 1ULL << 20;

TEST(PageSizes, AreAsFewAsPossible) {
  constexpr std::uint64_t k2 = 2 * kMiB;
  EXPECT_THAT(page_sizes(0, k2), ElementsAre());
  EXPECT_THAT(page_sizes(k2, k2), ElementsAre(k2));
  EXPECT_THAT(page_sizes(240 * kMiB, k2), ElementsAre(240 * kMiB));
  EXPECT_THAT(page_sizes(1026 * kMiB, k2), ElementsAre(512 * kMiB, 512 * kMiB, k2));
  // A granularity that does not divide the largest page.
  EXPECT_THAT(page_sizes(600 * kMiB, 200 * kMiB), ElementsAre(400 * kMiB, 200 * kMiB));
}

class Arenas : public testing::TestWithParam<Placement> {
 protected:
  ~Arenas() override {
    EXPECT_EQ(driver_.held_bytes(), 0U);
    EXPECT_EQ(driver_.mapped_bytes(), 0U);
    EXPECT_EQ(driver_.reserved_bytes(), 0U);
  }
  FakeDriver driver_;
};
INSTANTIATE_TEST_SUITE_P(Both, Arenas, testing::Values(Placement::kFixed, Placement::kAnywhere));

TEST_P(Arenas, HoldMemoryOnlyWhileTaken) {
  Arena arena(driver_.context(), GetParam(), 3 * kMiB);
  EXPECT_EQ(arena.bytes(), 4 * kMiB);
  EXPECT_EQ(driver_.held_bytes(), 0U);
  for (int i = 0; i < 3; ++i) {
    arena.take();
    arena.take();
    EXPECT_EQ(driver_.held_bytes(), 4 * kMiB);
    std::memset(reinterpret_cast<void*>(arena.address()), i, arena.bytes());
    arena.give_back();
    arena.give_back();
    EXPECT_EQ(driver_.held_bytes(), 0U);
  }
}

TEST_P(Arenas, HoldNothingWithoutMemory) {
  Arena arena(driver_.context(), GetParam(), 1026 * kMiB);
  // The first page fits, the second does not.
  driver_.set_capacity(600 * kMiB);
  EXPECT_THROW(arena.take(), OutOfMemory);
  EXPECT_FALSE(arena.taken());
  EXPECT_EQ(driver_.held_bytes(), 0U);
  driver_.set_capacity(1026 * kMiB);
  arena.take();
  EXPECT_TRUE(arena.taken());
}

TEST_P(Arenas, OfNoBytesWork) {
  Arena arena(driver_.context(), GetParam(), 0);
  arena.take();
  EXPECT_EQ(driver_.held_bytes(), 0U);
}

class FixedArena : public Arenas {};
INSTANTIATE_TEST_SUITE_P(Fixed, FixedArena, testing::Values(Placement::kFixed));

TEST_P(FixedArena, KeepsItsAddressAndForgetsItsBytes) {
  Arena arena(driver_.context(), GetParam(), 4 * kMiB);
  Arena other(driver_.context(), GetParam(), 4 * kMiB);
  const CUdeviceptr before = arena.address();
  arena.take();
  *reinterpret_cast<int*>(before) = 7;
  arena.give_back();
  other.take();
  arena.take();
  EXPECT_EQ(arena.address(), before);
  EXPECT_EQ(*reinterpret_cast<int*>(before), 0);
}

TEST_P(FixedArena, LosesNoPageToAFailure) {
  Arena arena(driver_.context(), GetParam(), 1026 * kMiB);
  for (const std::string entry : {"cuMemMap", "cuMemSetAccess"}) {
    driver_.fail(entry);
    EXPECT_THROW(arena.take(), base::RunError);
    EXPECT_EQ(driver_.held_bytes(), 0U) << entry;
    EXPECT_EQ(driver_.mapped_bytes(), 0U) << entry;
  }
  driver_.fail("");
  arena.take();
  EXPECT_EQ(driver_.mapped_bytes(), arena.bytes());
}

class WeightsTest : public testing::TestWithParam<Placement> {
 protected:
  /// Two blocks, of 3 and 1 MiB.
  std::unique_ptr<ArenaWeights> make(const std::string& key = "a") {
    auto weights = std::make_unique<ArenaWeights>(driver_.context(), GetParam(),
                                                  std::vector<std::uint64_t>{3 * kMiB, 4 * kMiB});
    weights->fill(key, [this](std::span<std::byte> bytes) {
      ++fills_;
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 31 + i / 4096);
    });
    return weights;
  }
  static bool right(const ArenaWeights& weights) {
    const auto* bytes = reinterpret_cast<const std::byte*>(weights.address());
    for (std::size_t i = 0; i < 4 * kMiB; ++i) {
      if (bytes[i] != std::byte(i * 31 + i / 4096)) return false;
    }
    return true;
  }
  FakeDriver driver_;
  int fills_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Both, WeightsTest,
                         testing::Values(Placement::kFixed, Placement::kAnywhere));

TEST_P(WeightsTest, AreTheSameAfterEachLoad) {
  const auto weights = make();
  EXPECT_EQ(weights->loaded_blocks(), 0U);
  for (std::uint64_t i = 0; i < 2; ++i) {
    weights->load();
    EXPECT_EQ(weights->loaded_blocks(), 2U);
    EXPECT_TRUE(right(*weights));
    EXPECT_EQ(driver_.copied_bytes(), (i + 1) * 4 * kMiB);
    weights->evict();
    EXPECT_EQ(weights->loaded_blocks(), 0U);
    EXPECT_EQ(driver_.held_bytes(), 0U);
  }
}

TEST_P(WeightsTest, ComeInBlockByBlock) {
  const auto weights = make();
  // Also after all weights were in once.
  for (int i = 0; i < 2; ++i) {
    driver_.hold_copies();
    const int before = driver_.waits();
    weights->load();
    EXPECT_EQ(weights->loaded_blocks(), 0U);
    weights->wait_for_block(nullptr, 0);
    EXPECT_EQ(driver_.waits(), before + 1);
    driver_.let_copies(1);
    EXPECT_EQ(weights->loaded_blocks(), 1U);
    weights->wait_for_block(nullptr, 0);
    EXPECT_EQ(driver_.waits(), before + 1);
    weights->wait_for_block(nullptr, 1);
    EXPECT_EQ(driver_.waits(), before + 2);
    driver_.let_copies(1);
    EXPECT_EQ(weights->loaded_blocks(), 2U);
    weights->evict();
  }
}

TEST_P(WeightsTest, EvictionWaitsForTheCopies) {
  const auto weights = make();
  driver_.hold_copies();
  weights->load();
  // A copy that came later would write to memory of somebody else.
  weights->evict();
  driver_.let_copies(2);
  EXPECT_EQ(driver_.held_bytes(), 0U);
}

TEST_P(WeightsTest, NoBlockRunsBeforeTheyAreLoaded) {
  const auto weights = make();
  EXPECT_THROW(weights->wait_for_block(nullptr, 0), base::RunError);
  weights->load();
  weights->wait_for_block(nullptr, 0);
  weights->evict();
  EXPECT_THROW(weights->wait_for_block(nullptr, 0), base::RunError);
}

TEST_P(WeightsTest, AFailedCopyHoldsNoMemory) {
  const auto weights = make();
  driver_.fail("cuMemcpyHtoDAsync");
  EXPECT_THROW(weights->load(), base::RunError);
  EXPECT_EQ(driver_.held_bytes(), 0U);
  driver_.fail("");
  weights->load();
  EXPECT_TRUE(right(*weights));
}

TEST_P(WeightsTest, ReplicasShareOneHostCopy) {
  {
    const auto first = make();
    const auto second = make();
    const auto other = make("b");
    EXPECT_EQ(fills_, 2);
    EXPECT_EQ(driver_.host_bytes(), 8 * kMiB);
    first->load();
    second->load();
    EXPECT_TRUE(right(*second));
    EXPECT_THROW(static_cast<void>(shared_host_copy(driver_.context(), "a", 1, {})),
                 base::RunError);
  }
  EXPECT_EQ(driver_.host_bytes(), 0U);
  EXPECT_EQ(driver_.held_bytes(), 0U);
  EXPECT_EQ(driver_.objects(), 0);
}

}  // namespace
}  // namespace sluice::engine
