// The places of waiting requests, in ordinary memory. On a GPU they are pinned.
#include "engine/torch/staging.hpp"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <array>

namespace sluice::engine {
namespace {

constexpr std::size_t kPlace = 8;

std::shared_ptr<StagingPool> pool(std::size_t count) {
  return std::make_shared<StagingPool>(c10::GetCPUAllocator()->allocate(count * kPlace), kPlace,
                                       count);
}

std::vector<Tensor> request(std::span<const std::byte> data) {
  return {{"input", DataType::kUint8, {static_cast<std::int64_t>(data.size())}, data}};
}

// Prevents: a request that reads the memory of another one, or its own after that is gone.
TEST(StagingPool, EveryRequestHasAPlaceOfItsOwn) {
  const auto places = pool(2);
  std::array<std::byte, 3> first{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 2> second{std::byte{4}, std::byte{5}};
  auto one = request(first);
  auto other = request(second);
  const auto keeps_one = places->stage(one);
  const auto keeps_other = places->stage(other);
  ASSERT_TRUE(keeps_one && keeps_other);
  first.fill(std::byte{0});
  second.fill(std::byte{0});
  EXPECT_EQ(one[0].data.size(), 3u);
  EXPECT_EQ(one[0].data[2], std::byte{3});
  EXPECT_EQ(other[0].data[0], std::byte{4});
}

TEST(StagingPool, WithoutAFreePlaceNothingChangesAndAPlaceComesBack) {
  const auto places = pool(1);
  const std::array<std::byte, kPlace> data{};
  auto first = request(data);
  auto held = places->stage(first);
  auto second = request(data);
  EXPECT_EQ(places->stage(second), nullptr);
  EXPECT_EQ(second[0].data.data(), data.data());
  held = nullptr;
  EXPECT_NE(places->stage(second), nullptr);
}

TEST(StagingPool, InputsThatDoNotFitHaveNoPlace) {
  const auto places = pool(2);
  const std::array<std::byte, kPlace + 1> data{};
  auto large = request(data);
  EXPECT_EQ(places->stage(large), nullptr);
}

// Prevents: memory that is freed with the model while a request of it is still being answered.
TEST(StagingPool, APlaceOutlivesItsPool) {
  auto places = pool(1);
  const std::array<std::byte, 1> data{std::byte{7}};
  auto one = request(data);
  const auto keeps = places->stage(one);
  places = nullptr;
  EXPECT_EQ(one[0].data[0], std::byte{7});
}

}  // namespace
}  // namespace sluice::engine
