// Text for people and for other programs: of processes, devices, users, metrics, and numbers on a
// command line.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/command_line.hpp"
#include "base/metrics_text.hpp"
#include "base/nearest.hpp"
#include "base/processes.hpp"
#include "base/session.hpp"
#include "base/user_name.hpp"
#include "tests/support/forked_child.hpp"

namespace sluice::base {
namespace {

// Prevents: bytes of another process break the lines of a table, its JSON, or the terminal.
TEST(Printable, IsUtf8WithoutControlCharacters) {
  const auto shown = [](const std::string& text) { return printable(text, 100); };
  EXPECT_EQ(shown("a b~"), "a b~");
  EXPECT_EQ(shown("a\nb\x7f\x1b"), "a?b??");
  EXPECT_EQ(shown("a\xc2\x80\xc2\x9b\xc2\xa0"), "a??\u00a0") << "U+009B begins an escape sequence";
  EXPECT_EQ(shown("\u00e9\u20ac\U0001f600"), "\u00e9\u20ac\U0001f600") << "two, three, four bytes";
  EXPECT_EQ(shown("\xc3"), "?") << "cut in a character";
  EXPECT_EQ(shown("\xe2\x82"), "??");
  EXPECT_EQ(shown("\xc3x"), "?x");
  EXPECT_EQ(shown("\x80"), "?") << "no first byte";
  EXPECT_EQ(shown("\xc1\xbf"), "??") << "overlong";
  EXPECT_EQ(shown("\xe0\x9f\xbf"), "???") << "overlong";
  EXPECT_EQ(shown("\xe0\xa0\x80"), "\xe0\xa0\x80") << "the first one of three bytes";
  EXPECT_EQ(shown("\xed\x9f\xbf"), "\xed\x9f\xbf") << "in front of the surrogates";
  EXPECT_EQ(shown("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(shown("\xf0\x8f\xbf\xbf"), "????") << "overlong";
  EXPECT_EQ(shown("\xf0\x90\x80\x80"), "\xf0\x90\x80\x80") << "the first one of four bytes";
  EXPECT_EQ(shown("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf") << "the last one";
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), "????") << "above the last one";
  EXPECT_EQ(shown("\xf5\x80\x80\x80"), "????");
}

TEST(Printable, IsCutBetweenCharacters) {
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("abc", 2), "ab");
  EXPECT_EQ(printable("a\u20ac", 3), "a");
  EXPECT_EQ(printable("a\u20ac", 4), "a\u20ac");
}

// Prevents: a table that shows the folder of a program instead of its arguments.
TEST(ProcessText, IsTheProgramWithItsArguments) {
  test::ForkedChild child([] {
    // It says that it cannot open "", and follows the other file for good.
    execl("/usr/bin/tail", "/usr/bin/tail", "-f", "/dev/null", "", nullptr);
    return 1;
  });
  std::string line;
  EXPECT_TRUE(test::eventually([&] {
    line = command_line(child.pid(), 100);
    return line.starts_with("tail");
  })) << line;
  EXPECT_EQ(line, "tail -f /dev/null");
  EXPECT_EQ(command_line(child.pid(), 3), "tai");
  EXPECT_EQ(short_name(child.pid()), "tail");
  EXPECT_EQ(short_name(999999999), "");
  EXPECT_EQ(command_line(999999999, 10), "");
}

TEST(Uuid, HasTheFormOfNvidiaSmi) {
  EXPECT_EQ(format_uuid({0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x10, 0x32, 0x54, 0x76,
                         0x98, 0xba, 0xdc, 0xfe}),
            "GPU-01234567-89ab-cdef-1032-547698badcfe");
}

TEST(UserName, IsTheOneOfTheSystemOrTheNumber) {
  EXPECT_EQ(user_name(0), "root");
  EXPECT_EQ(user_name(3999999999), "3999999999");
  EXPECT_EQ(find_user("root"), 0U);
  EXPECT_EQ(find_user("nobody-has-this-name"), std::nullopt);
  EXPECT_EQ(local_user_name(0), "root");
  EXPECT_EQ(local_user_name(3999999999), "uid 3999999999");
}

TEST(SessionName, IsAFileNameOfFewCharacters) {
  for (const char* good : {"a", "A-Z_0.9", "zZ9", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    EXPECT_TRUE(valid_session_name(good)) << good;
  }
  for (const char* bad : {"", ".a", "a.", "a/b", "a b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    EXPECT_FALSE(valid_session_name(bad)) << bad;
  }
}

// Prevents: a scrape that Prometheus refuses as a whole.
TEST(MetricsText, IsThePublishedFormat) {
  MetricsText text;
  text.family("a_total", "counter", "What a is.");
  text.sample(1.5);
  text.sample({{"x", "a\\\"\nb"}, {"y", ""}}, 2);
  text.family("h", "histogram", "Times.");
  text.sample("_bucket", {{"le", MetricsText::number(0.001)}}, 3);
  EXPECT_EQ(text.take(),
            "# HELP a_total What a is.\n# TYPE a_total counter\na_total 1.5\n"
            "a_total{x=\"a\\\\\\\"\\nb\",y=\"\"} 2\n"
            "# HELP h Times.\n# TYPE h histogram\nh_bucket{le=\"0.001\"} 3\n");
}

// Prevents: a number at a limit is refused, or one beyond it accepted, or what follows it ignored.
TEST(NumbersOnACommandLine, AreWithinTheirLimits) {
  const Check whole = whole_number(-1, 3);
  for (const char* good : {"-1", "0", "3"}) EXPECT_EQ(whole(good), "") << good;
  EXPECT_EQ(whole("4"), "'4' is not a whole number from -1 to 3");
  for (const char* bad : {"-2", "", "1x", "1.0", "99999999999999999999"}) {
    EXPECT_NE(whole(bad), "") << bad;
  }
  const Check real = number(0.5, 2);
  for (const char* good : {"0.5", "2", "1e0"}) EXPECT_EQ(real(good), "") << good;
  EXPECT_EQ(real("2.1"), "'2.1' is not a number from 0.5 to 2");
  for (const char* bad : {"0.4", "", "1x", "nan", "inf"}) EXPECT_NE(real(bad), "") << bad;
  const Check word = one_of({"a", "b"});
  EXPECT_EQ(word("b"), "");
  EXPECT_EQ(word("c"), "'c' is not one of a, b");
}

TEST(ErrorLines, AreTakenFromTheOutputOfAnotherProgram) {
  EXPECT_EQ(printed_error("sluice gpus", "sluice gpus: no driver\nmore\n"), "no driver");
  EXPECT_EQ(printed_error("sluice gpus", "Killed"), "Killed");
  EXPECT_EQ(with_remark("no such file", "see --help"), "no such file; see --help");
  EXPECT_EQ(with_remark("did you mean 'a'?", "see --help"), "did you mean 'a'? See --help");
}

}  // namespace
}  // namespace sluice::base
