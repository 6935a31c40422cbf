// What a network costs. Prevents: a sum that lacks a call, or that counts a call once that comes
// twice, or times that are no labels.
#include "profiler/records/network_sums.hpp"

#include <gmock/gmock.h>

#include "profiler/records/record.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::Pair;

class NetworkSums : public testing::Test {
 protected:
  void add(const std::string& task, const std::string& device, double seconds,
           bool disturbed = false) {
    Record record{.target = "cuda", .task_name = "fused_" + task, .seconds = {seconds}};
    record.details = RecordDetails{.task = task, .program = "p", .device = device};
    record.details->disturbed = disturbed;
    RecordFile(records_).add(record);
  }

  const test::TempFolder folder_;
  const std::string records_ = folder_.file("r.jsonl");
  const Network network_{"net", 4, {{"a", {}}, {"b", {0}}, {"a", {1}}}};
  const Network empty_{"empty", 1, {}};
};

TEST_F(NetworkSums, EachCallCountsByTheFastestProgramOfItsTask) {
  add("a", "H200", 0.25);
  add("a", "H200", 0.5);
  add("b", "H200", 2);
  add("b", "H200", 1, true);
  add("a", "H200@64", 4);
  add("b", "H200@64", 8);
  add("a", "H200@16", 1);
  const auto sums = network_sums({network_, empty_, network_}, records_);
  ASSERT_EQ(sums.size(), 1U) << "a network of two packs once";
  EXPECT_EQ(sums[0].name, "net");
  EXPECT_EQ(sums[0].batch, 4);
  EXPECT_EQ(sums[0].calls, 3U);
  EXPECT_THAT(sums[0].seconds,
              ElementsAre(Pair("H200", DoubleEq(2.5)), Pair("H200@64", DoubleEq(16))));
}

TEST_F(NetworkSums, ANetworkWithoutAllCallsHasNone) {
  add("a", "H200", 1);
  EXPECT_TRUE(network_sums({network_, empty_}, records_).empty());
}

}  // namespace
}  // namespace sluice::profiler
