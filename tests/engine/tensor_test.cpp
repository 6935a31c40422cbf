// Tensors come from strangers: a wrong size must be refused before a byte of it is read.
#include "engine/tensor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace sluice::engine {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::string check(DataType type, std::vector<std::int64_t> shape, std::string_view data) {
  return check_data(type, shape, std::as_bytes(std::span(data)));
}

TEST(ElementCount, RefusesNegativeDimensionsAndOverflow) {
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(element_count(Shape{}), 1u);
  EXPECT_EQ(element_count(Shape{2, 3, 4}), 24u);
  EXPECT_EQ(element_count(Shape{kMax, 1}), static_cast<std::uint64_t>(kMax));
  EXPECT_EQ(element_count(Shape{kMax, 0}), 0u);
  EXPECT_EQ(element_count(Shape{0, -1}), std::nullopt);
  EXPECT_EQ(element_count(Shape{-2, -3}), std::nullopt);
  EXPECT_EQ(element_count(Shape{kMax, 2}), std::nullopt);
  EXPECT_EQ(element_count(Shape{1LL << 32, 1LL << 32}), std::nullopt);
}

TEST(CheckData, ComparesBytesWithTheShape) {
  EXPECT_EQ(check(DataType::kInt16, {2, 2}, "12345678"), "");
  EXPECT_EQ(check(DataType::kInt16, {2, 2}, "1234567"), "found 7 bytes, expected 8");
  EXPECT_EQ(check(DataType::kFp32, {0, 5}, ""), "");
  // The product of the shape fits, its bytes do not.
  EXPECT_NE(check(DataType::kFp64, {kMax}, ""), "");
  EXPECT_NE(check(DataType::kFp32, {-1}, "1234"), "");
}

TEST(CheckData, FollowsTheLengthsOfBytesElements) {
  const std::string two("\2\0\0\0ab\0\0\0\0", 10);
  EXPECT_EQ(check(DataType::kBytes, {2}, two), "");
  EXPECT_EQ(check(DataType::kBytes, {1}, two), "4 bytes follow the last of 1 elements");
  EXPECT_EQ(check(DataType::kBytes, {3}, two), "the data ends after 2 of 3 elements");
  EXPECT_EQ(check(DataType::kBytes, {1}, std::string_view("\xff\xff\xff\xff", 4)),
            "element 0 has length 4294967295, but only 0 bytes follow");
  EXPECT_EQ(check(DataType::kBytes, {kMax}, ""),
            "the data ends after 0 of 9223372036854775807 elements");
}

TEST(CheckIds, AllMustBeInTheTable) {
  TensorSpec spec{"ids", DataType::kInt64, {2}};
  const auto check_them = [&spec](std::vector<std::int64_t> ids) {
    const std::vector<std::int64_t> shape{1, static_cast<std::int64_t>(ids.size())};
    return check_ids(spec, {"ids", DataType::kInt64, shape, std::as_bytes(std::span(ids))});
  };
  EXPECT_EQ(check_them({kMax, -1}), "");
  spec.id_end = 100;
  EXPECT_EQ(check_them({0, 99}), "");
  EXPECT_EQ(check_them({0, 100}), "found id 100, allowed: 0 to 99");
  EXPECT_EQ(check_them({-1, 0}), "found id -1, allowed: 0 to 99");
  EXPECT_NE(check_them({0, 1LL << 32}), "") << "its lower half is in the table";
  EXPECT_EQ(check_them({}), "");
}

// Prevents: ids of a narrow type, which index a table as well, read outside of it.
TEST(CheckIds, OfEveryType) {
  const auto check_one = [](DataType type, auto id) {
    const TensorSpec spec{"ids", type, {}, 100};
    const std::array ids{id};
    return check_ids(spec, {"ids", type, {1}, std::as_bytes(std::span(ids))});
  };
  EXPECT_EQ(check_one(DataType::kUint8, std::uint8_t{99}), "");
  EXPECT_EQ(check_one(DataType::kUint8, std::uint8_t{200}), "found id 200, allowed: 0 to 99");
  EXPECT_EQ(check_one(DataType::kInt8, std::int8_t{99}), "");
  EXPECT_EQ(check_one(DataType::kInt8, std::int8_t{-100}), "found id -100, allowed: 0 to 99");
  EXPECT_EQ(check_one(DataType::kInt16, std::int16_t{99}), "");
  EXPECT_EQ(check_one(DataType::kInt16, std::int16_t{256}), "found id 256, allowed: 0 to 99");
  EXPECT_EQ(check_one(DataType::kInt32, std::int32_t{99}), "");
  EXPECT_EQ(check_one(DataType::kInt32, std::int32_t{-1}), "found id -1, allowed: 0 to 99");
  EXPECT_NE(check_one(DataType::kFp32, 1.0F), "");
}

// Prevents: true as 200, which an index of a model takes for the two hundredth element.
TEST(CheckData, ABoolIsZeroOrOne) {
  EXPECT_EQ(check(DataType::kBool, {3}, std::string_view("\0\1\1", 3)), "");
  EXPECT_EQ(check(DataType::kBool, {3}, std::string_view("\0\1\2", 3)),
            "found the byte 2 in a BOOL tensor, allowed: 0 and 1");
  EXPECT_EQ(check(DataType::kUint8, {1}, "\2"), "");
}

TEST(DataTypes, AreNamedAsTheProtocolNamesThem) {
  for (int i = 0; i <= static_cast<int>(DataType::kBytes); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(parse_data_type(to_string(type)), type);
  }
  EXPECT_EQ(to_string(DataType::kBf16), "BF16");
  EXPECT_EQ(size_of(DataType::kFp64), 8u);
  EXPECT_EQ(parse_data_type("fp32"), std::nullopt);
}

}  // namespace
}  // namespace sluice::engine
