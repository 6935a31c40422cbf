#include "shm/give.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "shm/messages.hpp"

namespace sluice::shm {
namespace {

// Prevents: a program that gives something else than status, a log or the command of a worker says.
TEST(Give, EveryValueIsReadBackFromItsText) {
  for (std::uint32_t give = 0; give <= kMostGive; ++give) {
    EXPECT_EQ(parse_give(give_text(give)), give) << give_text(give);
    EXPECT_EQ(check_give(give_text(give)), "");
  }
  EXPECT_EQ(give_text(kDefaultGive), "5%");
  EXPECT_EQ(give_text(25), "2.5%");
  EXPECT_EQ(give_text(1), "0.1%");
  EXPECT_EQ(give_text(0), "0");
}

// Prevents: a typo that is taken for a number that nobody meant. The form is stated here a second
// time, without the code of the parser.
TEST(Give, RandomTextIsReadOnlyInTheStatedForm) {
  std::mt19937 random(20);
  const std::string letters = "0123456789.%-+ ex";
  int read = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text(1 + random() % 5, ' ');
    for (char& c : text) c = letters[random() % (random() % 2 == 0 ? 12 : letters.size())];
    if (random() % 2 == 0) text += '%';
    const std::optional<std::uint32_t> give = parse_give(text);
    if (!give) continue;
    ++read;
    ASSERT_LE(*give, kMostGive) << text;
    if (text == "0") continue;
    ASSERT_EQ(text.back(), '%') << text;
    const std::string number = text.substr(0, text.size() - 1);
    ASSERT_EQ(number.find_first_not_of("0123456789."), std::string::npos) << text;
    const std::size_t point = number.find('.');
    ASSERT_TRUE(point == std::string::npos || (point != 0 && point + 2 == number.size())) << text;
    ASSERT_NEAR(std::stod(number) * 10, *give, 1e-6) << text;
  }
  EXPECT_GT(read, 1000);
}

TEST(Give, AWrongOneIsNamedWithWhatWasMeant) {
  EXPECT_EQ(check_give("5"),
            "'5' is not a share of its time: 0, or a percentage from 0.1% to 50% such as 5%; did "
            "you mean '5%'?");
  EXPECT_NE(check_give("2.5 %").find("did you mean '2.5%'?"), std::string::npos);
  for (const char* far : {"", "%", " ", "none", "60%", "2.55%", "-5%"}) {
    EXPECT_NE(check_give(far), "") << far;
    EXPECT_EQ(check_give(far).find("did you mean"), std::string::npos) << far;
  }
}

// Prevents: a word that nobody wrote, or a damaged one, that switches everything off.
TEST(Give, TheBoardSaysTheDefaultByZero) {
  EXPECT_EQ(unpack_give(0), kDefaultGive);
  for (std::uint32_t give = 0; give <= kMostGive; ++give) {
    EXPECT_NE(pack_give(give), 0U);
    EXPECT_EQ(unpack_give(pack_give(give)), give);
    EXPECT_EQ(said_give(say_give(give)), give);
    EXPECT_NE(say_give(give), kKeepGive);
  }
  EXPECT_EQ(unpack_give(~std::uint32_t{0}), kMostGive);
}

// Prevents: the end of a long device name, which an earlier library sends where a later one has the
// field, is taken for a number.
TEST(Give, AnEarlierPeerSaysNothing) {
  EXPECT_EQ(said_give(0), std::nullopt);
  for (std::uint16_t last = 0; last < 256; ++last) {
    EXPECT_EQ(said_give(last), std::nullopt) << "the character, and the NUL behind it";
  }
  EXPECT_EQ(Request{}.give, kKeepGive);
}

}  // namespace
}  // namespace sluice::shm
