#include "server/workload/inputs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.hpp"

namespace sluice::server::workload {
namespace {

using engine::DataType;
using testing::Each;
using testing::ElementsAre;

constexpr DataType kAllTypes[] = {
    DataType::kBool, DataType::kUint8, DataType::kUint16, DataType::kUint32, DataType::kUint64,
    DataType::kInt8, DataType::kInt16, DataType::kInt32,  DataType::kInt64,  DataType::kFp16,
    DataType::kBf16, DataType::kFp32,  DataType::kFp64,   DataType::kBytes};

Input only(const InputSpec& spec, const InputOptions& options) {
  return make_inputs("m", {spec}, options).at(0);
}

template <class Value>
std::vector<double> values(const Input& input) {
  std::vector<double> list;
  for (std::size_t at = 0; at < input.data.size(); at += sizeof(Value)) {
    Value value{};
    std::memcpy(&value, input.data.data() + at, sizeof(Value));
    list.push_back(static_cast<double>(value));
  }
  return list;
}

TEST(Inputs, AnySizeIsTheBatchInFrontAndOneElsewhere) {
  const InputSpec spec{"x", DataType::kFp32, {-1, 3, -1}};
  EXPECT_THAT(only(spec, {}).shape, ElementsAre(1, 3, 1));
  EXPECT_THAT(only(spec, {.batch = 8}).shape, ElementsAre(8, 3, 1));
  EXPECT_EQ(only(spec, {.batch = 8}).data, std::string(8 * 3 * 4, '\0'));
  EXPECT_THAT(only({"x", DataType::kFp32, {}}, {}).shape, ElementsAre());
}

TEST(Inputs, DimIsTheSizeOfTheOtherDimensionsOfAnySize) {
  const InputSpec spec{"x", DataType::kFp32, {-1, 3, -1, -1}};
  EXPECT_THAT(only(spec, {.batch = 2, .dim = 5}).shape, ElementsAre(2, 3, 5, 5));
  EXPECT_EQ(only(spec, {.batch = 2, .dim = 5}).data.size(), 2U * 3 * 5 * 5 * 4);
  EXPECT_THAT(only({"x", DataType::kFp32, {4, 3}}, {.dim = 5}).shape, ElementsAre(4, 3));
}

TEST(Inputs, EveryTypeHasTheBytesThatTheServerChecks) {
  for (const DataType type : kAllTypes) {
    for (const bool random : {false, true}) {
      const Input input = only({"x", type, {-1, 50}}, {.batch = 2, .random = random});
      EXPECT_EQ(engine::check_data(type, input.shape, std::as_bytes(std::span(input.data))), "")
          << engine::to_string(type);
    }
  }
}

TEST(Inputs, RandomIntegersAreSmallBecauseTheyMayBeIndices) {
  const InputOptions options{.random = true};
  const auto indices = values<std::int64_t>(only({"x", DataType::kInt64, {-1, 1000}}, options));
  EXPECT_THAT(indices, Each(testing::AllOf(testing::Ge(0), testing::Lt(100))));
  EXPECT_GT(*std::max_element(indices.begin(), indices.end()), 50);
  EXPECT_THAT(values<std::int8_t>(only({"x", DataType::kInt8, {-1, 1000}}, options)),
              Each(testing::AllOf(testing::Ge(0), testing::Lt(100))));
  EXPECT_THAT(values<std::uint8_t>(only({"x", DataType::kBool, {-1, 1000}}, options)),
              Each(testing::Le(1)));
}

TEST(Inputs, RandomFractionsAreBelowOne) {
  const InputOptions options{.random = true};
  EXPECT_THAT(values<float>(only({"x", DataType::kFp32, {-1, 1000}}, options)),
              Each(testing::AllOf(testing::Ge(0), testing::Lt(1))));
  // 0x3800 is 0.5 and 0x3c00 is 1 in FP16; 0x3f00 and 0x3f80 in BF16.
  EXPECT_THAT(values<std::uint16_t>(only({"x", DataType::kFp16, {-1, 1000}}, options)),
              Each(testing::AllOf(testing::Ge(0x3800), testing::Lt(0x3c00))));
  EXPECT_THAT(values<std::uint16_t>(only({"x", DataType::kBf16, {-1, 1000}}, options)),
              Each(testing::AllOf(testing::Ge(0x3f00), testing::Lt(0x3f80))));
}

TEST(Inputs, OneSeedGivesTheSameValues) {
  const InputSpec spec{"x", DataType::kFp32, {-1, 100}};
  EXPECT_EQ(only(spec, {1, true, 5}).data, only(spec, {1, true, 5}).data);
  EXPECT_NE(only(spec, {1, true, 5}).data, only(spec, {1, true, 6}).data);
}

TEST(Inputs, WhatCannotBeSentIsRefused) {
  EXPECT_THROW((void)only({"x", DataType::kFp32, {1, 3}}, {.batch = 2}), base::RunError);
  EXPECT_THROW((void)only({"x", DataType::kFp32, {-1, 1LL << 40, 1LL << 40}}, {}), base::RunError);
  EXPECT_THROW((void)only({"x", DataType::kFp32, {-1, -2}}, {}), base::RunError);
}

}  // namespace
}  // namespace sluice::server::workload
