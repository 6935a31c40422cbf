// Which outputs count as equal. Prevents: labels of programs that compute something else, and
// correct programs that are refused because they add in another order.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "profiler/measure/task_buffers.hpp"

namespace sluice::profiler {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

template <class Number>
Outputs outputs_of(const std::vector<Number>& numbers) {
  std::vector<char> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return {{bytes}};
}

Task task_with(const std::string& dtype) {
  Task task;
  task.buffers = {{{3}, dtype, false}, {{3}, dtype, true}};
  return task;
}

TEST(Outputs, SmallDifferencesAreThoseOfAnotherOrder) {
  const Task task = task_with("float32");
  const auto expected = outputs_of<float>({1, -100, 0.001F});
  EXPECT_THAT(difference(task, expected, outputs_of<float>({1.05F, -100, 0})), IsEmpty());
  EXPECT_THAT(difference(task, expected, outputs_of<float>({1, -100.5F, 0.001F})),
              HasSubstr("buffer 1: -100.5 instead of -100 at 1"));
  EXPECT_THAT(difference(task, expected, outputs_of<float>({1, NAN, 0.001F})), HasSubstr("nan"));
}

TEST(Outputs, NotANumberEqualsOnlyItself) {
  const Task task = task_with("float64");
  const auto expected = outputs_of<double>({NAN, INFINITY, 2});
  EXPECT_THAT(difference(task, expected, expected), IsEmpty());
  EXPECT_THAT(difference(task, expected, outputs_of<double>({1, INFINITY, 2})), HasSubstr("at 0"));
  EXPECT_THAT(difference(task, expected, outputs_of<double>({NAN, -INFINITY, 2})),
              HasSubstr("at 1"));
}

TEST(Outputs, OtherTypesMustBeEqual) {
  const Task task = task_with("int32");
  EXPECT_THAT(difference(task, outputs_of<int>({1, 2, 3}), outputs_of<int>({1, 2, 3})), IsEmpty());
  EXPECT_THAT(difference(task, outputs_of<int>({1, 2, 3}), outputs_of<int>({1, 2, 4})),
              HasSubstr("other bytes"));
}

TEST(ExpectedOutputs, ATaskKeepsItsOwnWhileOthersComeInTurn) {
  ExpectedOutputs expected(1000);
  EXPECT_EQ(expected.find("a"), nullptr);
  expected.add("a", outputs_of<float>({1, 2}));
  expected.add("b", outputs_of<float>({3}));
  expected.add("a", outputs_of<float>({9, 9}));
  ASSERT_NE(expected.find("a"), nullptr);
  EXPECT_EQ(expected.find("a")->buffers, (outputs_of<float>({1, 2}).buffers)) << "the first";
  EXPECT_EQ(expected.find("b")->buffers, (outputs_of<float>({3}).buffers));
}

TEST(ExpectedOutputs, TheOldestMakeWay) {
  ExpectedOutputs expected(16);
  for (const char* const task : {"a", "b", "c"}) expected.add(task, outputs_of<float>({1, 2}));
  EXPECT_EQ(expected.find("a"), nullptr);
  EXPECT_NE(expected.find("b"), nullptr);
  expected.add("large", outputs_of<float>({1, 2, 3, 4, 5}));
  EXPECT_NE(expected.find("large"), nullptr) << "the program itself must be compared with it";
  EXPECT_EQ(expected.find("c"), nullptr);
}

}  // namespace
}  // namespace sluice::profiler
