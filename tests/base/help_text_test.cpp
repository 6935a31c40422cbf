// Prevents: a --help of which the terminal breaks words, as `p9` and `9=1.2x`.
#include "base/help_text.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::base {
namespace {

TEST(HelpText, GoesOnBelowTheDescription) {
  EXPECT_EQ(wrapped_help("  --policy P    How it gives way to others, as device:200us\n", 40),
            "  --policy P    How it gives way to\n"
            "                others, as device:200us\n");
}

TEST(HelpText, KeepsWhatFits) {
  const std::string text = "Usage: sluice set\n\nOptions:\n  -h,--help   Print this help\n";
  EXPECT_EQ(wrapped_help(text, 40), text);
  EXPECT_EQ(wrapped_help("1234 5678\n", 9), "1234 5678\n");
  EXPECT_EQ(wrapped_help("1234 5678\n", 8), "1234\n5678\n");
}

TEST(HelpText, IndentsPlainLinesAsTheyBegin) {
  EXPECT_EQ(wrapped_help("Run any program, unchanged, with a priority\n", 20),
            "Run any program,\nunchanged, with a\npriority\n");
  EXPECT_EQ(wrapped_help("  sluice exec --priority 0 -- train\n", 20),
            "  sluice exec\n  --priority 0 --\n  train\n");
}

TEST(HelpText, BreaksNoWord) {
  EXPECT_EQ(wrapped_help("  abcdefghijklmnopqrstuvwxyz one\n", 20),
            "  abcdefghijklmnopqrstuvwxyz\n  one\n");
  EXPECT_EQ(wrapped_help("abcdefghijklmnopqrstuvwxyz\n", 20), "abcdefghijklmnopqrstuvwxyz\n");
  // A description that begins too far right gets a quarter of the width.
  EXPECT_EQ(wrapped_help("  --a-long-name-of-an-option     is described\n", 36),
            "  --a-long-name-of-an-option     is\n         described\n");
}

TEST(HelpText, LosesNoWord) {
  const std::string text = "  --a B     one two three four five six seven eight nine ten\n";
  std::string joined = wrapped_help(text, 24);
  EXPECT_EQ(std::count(joined.begin(), joined.end(), '\n'), 5) << joined;
  for (const char* word :
       {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}) {
    EXPECT_NE(joined.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace sluice::base
