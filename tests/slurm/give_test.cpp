// What --sluice-give takes is what the interposer reads.
#include "shm/give.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

extern "C" {
#include "slurm/give.h"
}

namespace sluice::test {
namespace {

void expect_same(const std::string& text) {
  EXPECT_EQ(sluice_is_give(text.c_str()) == 1, shm::parse_give(text).has_value()) << text;
}

// Prevents: a job that is started with a setting which its programs cannot read, and so gives what
// nobody asked for; or one that is refused for a good setting.
TEST(SlurmGive, IsWhatTheInterposerReads) {
  for (const char* const number :
       {"",          "0",    "00", "5",    "05",   "2.5", "2.",
        ".5",        "2.55", "50", "50.0", "50.1", "51",  "0.1",
        "0.0",       "-1",   "+1", " 5",   "5 ",   "1e1", "99999999999999999999",
        "4294967297"}) {
    for (const char* const sign : {"", "%", "%%", " %", "percent"}) {
      expect_same(std::string(number) + sign);
    }
  }
  std::mt19937 random(1);
  const std::string letters = "0123456789.% -";
  for (int i = 0; i < 20'000; ++i) {
    std::string text(random() % 5, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    expect_same(text + (random() % 2 == 0 ? "%" : ""));
  }
}

}  // namespace
}  // namespace sluice::test
