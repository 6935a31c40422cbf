// op.csv. Prevents: block times that miss an operator or count it twice, and times of one model
// that split another.
#include "engine/operators/operator_table.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::engine {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const OperatorTarget kTarget{.model = "resnet50", .batch = 8, .gpu = "sm_90", .sms = 132};

std::vector<OperatorTimes> made_up() {
  return {{.node = 0,
           .name = "aten::conv2d",
           .inputs = "8x3x224x224 64x3x7x7",
           .ms = 0.5,
           .kernels = {{"_Z4convIfEvPT_", 0.4, {100, 2, 1}, {256, 1, 1}, 64, 1024},
                       {"tail", 0.1, {4, 4, 4}, {32, 1, 1}, 16, 0}}},
          {.node = 0, .name = "aten::view", .inputs = "8x64"},
          {.node = 3, .name = "aten::relu", .inputs = "8x64", .ms = 0.25},
          {.node = 7, .name = "aten::add", .inputs = "", .ms = 0.125}};
}

class OperatorTable : public testing::Test {
 protected:
  [[nodiscard]] std::string written() const {
    write_operators(file_, kTarget, made_up());
    return test::read_file(file_);
  }
  void expect_refused(const std::string& text, const char* line) const {
    std::ofstream(file_) << text;
    EXPECT_THAT([&] { (void)read_operators(file_); },
                ThrowsMessage<base::UsageError>(HasSubstr(line)));
  }
  const test::TempFolder folder_;
  const std::string file_ = folder_.file("op.csv");
};

TEST_F(OperatorTable, HasTheLongestKernelOfEachOperator) {
  const std::string text = written();
  EXPECT_THAT(
      text,
      HasSubstr("\nresnet50,8,sm_90,0,0.5,2,0.1,0.448485,100x2x1,256x1x1,64,1024,aten::conv2d,"
                "8x3x224x224 64x3x7x7,\"void conv<float>(float*)\"\n"));
  EXPECT_THAT(text, HasSubstr("\nresnet50,8,sm_90,0,0,0,0,0,,,,,aten::view,8x64,\n"));
}

TEST_F(OperatorTable, TimeWithFewerBlocksThanSmsIsIdleTimeOfSomeSms) {
  EXPECT_DOUBLE_EQ(few_blocks_ms(made_up()[0], 132), 0.1) << "64 blocks, and 200";
  EXPECT_DOUBLE_EQ(few_blocks_ms(made_up()[0], 201), 0.5);
  EXPECT_DOUBLE_EQ(few_blocks_ms(made_up()[0], 64), 0) << "one for each SM";
}

TEST_F(OperatorTable, AKernelNeedsTheSmsThatHaveABlockOfIt) {
  EXPECT_DOUBLE_EQ(sm_ms(made_up()[0], 128), 0.4 + 0.1 * 64 / 128);
  EXPECT_DOUBLE_EQ(sm_ms(made_up()[1], 128), 0);
}

TEST_F(OperatorTable, TheTimeBeforeACutIsThatOfAllEarlierParts) {
  (void)written();
  const NodeTimes times = read_operators(file_);
  EXPECT_EQ(times.target.model, "resnet50");
  EXPECT_EQ(times.target.batch, 8U);
  EXPECT_EQ(times.target.gpu, "sm_90");
  EXPECT_DOUBLE_EQ(times.before(0), 0);
  EXPECT_DOUBLE_EQ(times.before(3), 0.5);
  EXPECT_DOUBLE_EQ(times.before(7), 0.75);
  EXPECT_DOUBLE_EQ(times.before(8), 0.875);
}

TEST_F(OperatorTable, AnotherFileIsRefusedWithItsLine) {
  const std::string good = written();
  expect_refused("a,b\n", "line 1: not an op.csv");
  expect_refused(good + "resnet50,8\n", "line 6: too few columns");
  expect_refused(good + "resnet50,8,sm_90,x,0.5,\n", "line 6: 'x' is no number");
  expect_refused(good + "resnet18,8,sm_90,9,0.5,\n", "line 6: another model, batch or GPU");
  EXPECT_THAT([&] { (void)read_operators(folder_.file("none")); },
              ThrowsMessage<base::UsageError>(HasSubstr("cannot be read")));
}

}  // namespace
}  // namespace sluice::engine
