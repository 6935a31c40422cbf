// The recorded answers: one of another driver, or a damaged file, must not decide about slices.
#include "controller/slice_answers.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_folder.hpp"

namespace sluice::controller::test {
namespace {

using shm::SliceAnswer;
using Kind = SliceAnswer::Kind;
constexpr const char* kUuid = "GPU-1";
constexpr const char* kObeyed =
    R"({"driver": "580.1", "slices": "obeyed", "short_ms": 0.263, "driver_ms": 1.2, "why": ""})";

class RecordedAnswers : public testing::Test {
 protected:
  std::optional<SliceAnswer> with(const std::string& text) {
    static_cast<void>(folder_.write("slices-GPU-1.json", text));
    return recorded_answer(folder_.path(), kUuid, "580.1");
  }

  sluice::test::TempFolder folder_;
};

TEST_F(RecordedAnswers, AreReadForTheirDriverAndDevice) {
  EXPECT_EQ(with(kObeyed), (SliceAnswer{Kind::kObeyed, 260}));
  EXPECT_FALSE(recorded_answer(folder_.path(), kUuid, "580.2"));
  EXPECT_FALSE(recorded_answer(folder_.path(), "GPU-2", "580.1"));
  EXPECT_FALSE(recorded_answer(folder_.path(), kUuid, "")) << "no driver is loaded";
  EXPECT_FALSE(recorded_answer("", kUuid, "580.1"));
  EXPECT_EQ(with(R"({"driver": "580.1", "slices": "not obeyed", "short_ms": 1e9})"),
            (SliceAnswer{Kind::kNotObeyed, 100'000}));
}

TEST_F(RecordedAnswers, CountAsNoneIfTheyAreDamaged) {
  for (const char* text : {
           "",
           "{",
           "[]",
           "7",
           R"({"slices": "obeyed", "short_ms": 0.2})",
           R"({"driver": "580.1", "slices": null, "short_ms": 0.2})",
           R"({"driver": "580.1", "slices": "perhaps", "short_ms": 0.2})",
           R"({"driver": "580.1", "slices": "no answer yet", "short_ms": 0.2})",
           R"({"driver": "580.1", "slices": "obeyed", "short_ms": "0.2"})",
           R"({"driver": ["580.1"], "slices": "obeyed", "short_ms": 0.2})",
       }) {
    EXPECT_FALSE(with(text)) << text;
  }
  EXPECT_FALSE(with(std::string(5000, ' ') + kObeyed)) << "longer than any of ours";
}

// Prevents: a pipe in the place of the file stops the thread.
TEST_F(RecordedAnswers, AreNotAwaitedFromAPipe) {
  ASSERT_EQ(mkfifo(folder_.file("slices-GPU-1.json").c_str(), 0600), 0);
  EXPECT_FALSE(recorded_answer(folder_.path(), kUuid, "580.1"));
}

TEST_F(RecordedAnswers, AreReplacedAsAWhole) {
  const std::string folder = folder_.file("new/sluice");
  record_answer(folder, kUuid, kObeyed);
  EXPECT_EQ(recorded_answer(folder, kUuid, "580.1"), (SliceAnswer{Kind::kObeyed, 260}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1)
      << "no temporary file is left";
  record_answer("/proc/no such folder", kUuid, kObeyed);  // a home that cannot be written
  record_answer("", kUuid, kObeyed);
}

TEST(PrintedAnswers, HaveAReasonIfThereIsNone) {
  std::string why;
  EXPECT_EQ(printed_answer(kObeyed, why), (SliceAnswer{Kind::kObeyed, 260}));
  EXPECT_EQ(why, "");
  EXPECT_FALSE(printed_answer(R"({"slices": null, "short_ms": 0, "why": "no GPU"})", why));
  EXPECT_EQ(why, "no GPU");
}

TEST(SliceAnswers, SurviveTheBoard) {
  for (const auto kind : {Kind::kNone, Kind::kObeyed, Kind::kNotObeyed}) {
    EXPECT_EQ(SliceAnswer::unpack(SliceAnswer{kind, 2510}.pack()), (SliceAnswer{kind, 2510}));
  }
  EXPECT_EQ(SliceAnswer{}.pack(), 0) << "a new board has no answer";
  EXPECT_EQ(shm::answer_text({Kind::kObeyed, 260}), "obeyed (0.26 ms)");
  EXPECT_EQ(shm::answer_text({Kind::kNotObeyed, 260}), "not obeyed");
  EXPECT_EQ(shm::answer_text({}), "no answer yet");
}

}  // namespace
}  // namespace sluice::controller::test
