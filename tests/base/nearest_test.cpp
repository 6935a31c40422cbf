#include "base/nearest.hpp"

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(EditDistance, CountsInsertionDeletionReplacementAndSwap) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
  EXPECT_EQ(edit_distance("priorty", "priority"), 1U);
  EXPECT_EQ(edit_distance("prioirty", "priority"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("controlevent", "controlEvent"), 0U);
}

TEST(Nearest, NamesTheKeyThatWasMeantAndNothingFarOff) {
  const std::vector<std::string> keys{"control", "controlsync", "controlEvent", "priority"};
  EXPECT_EQ(nearest("prioritty", keys), "priority");
  EXPECT_EQ(nearest("controlsnyc", keys), "controlsync");
  EXPECT_EQ(nearest("zebra", keys), "");
  EXPECT_EQ(nearest("x", keys), "");
  EXPECT_EQ(nearest("", keys), "");
}

// Prevents: a client of a server sends a name of 64 MB, and a thread compares it for seconds.
TEST(Nearest, IsNothingForAWordThatIsNoName) {
  EXPECT_EQ(nearest("status" + std::string(300, 's'), {"status"}), "");
  EXPECT_EQ(nearest(std::string(std::size_t{64} << 20U, 'x'), {"status"}), "");
}

// Prevents: no suggestion where a word was only written out, or cut off.
TEST(Nearest, NamesAWordThatIsOnlyLongerOrShorter) {
  EXPECT_EQ(nearest("exp_duration", {"models", "exp_dur"}), "exp_dur");
  EXPECT_EQ(nearest("cont", {"priority", "controlsync"}), "controlsync");
  EXPECT_EQ(nearest("con", {"controlsync"}), "");
}

// Prevents: "did you mean 'x'?; see" in a message.
TEST(Nearest, ARemarkAfterAQuestionIsASentence) {
  EXPECT_EQ(did_you_mean("stats", {"status"}), ", did you mean 'status'?");
  EXPECT_EQ(did_you_mean("zebra", {"status"}), "");
  EXPECT_EQ(with_remark("no 'a', did you mean 'b'?", "see c"), "no 'a', did you mean 'b'? See c");
  EXPECT_EQ(with_remark("no 'a'", "see c"), "no 'a'; see c");
}

TEST(Nearest, NamesTheCommandThatWasMeantToo) {
  const std::vector<std::string> commands{"exec", "status", "run", "gpus"};
  EXPECT_EQ(nearest("stats", commands), "status");
  EXPECT_EQ(nearest("gpsu", commands), "gpus");
  EXPECT_EQ(nearest("ru", commands), "run");
  EXPECT_EQ(nearest("exce", commands), "exec");
  EXPECT_EQ(nearest("replicate", commands), "");
}

}  // namespace
}  // namespace sluice::base
