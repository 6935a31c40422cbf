#include "shm/memory_limit.hpp"

#include <gtest/gtest.h>

namespace sluice::shm {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

// Prevents: a limit that means another size than the user wrote.
TEST(MemoryLimitText, IsReadAndWrittenInEveryUnit) {
  const auto is = [](const char* text, std::uint64_t bytes, const char* written) {
    EXPECT_EQ(parse_memory_limit(text), bytes) << text;
    EXPECT_EQ(memory_limit_text(bytes), written);
    EXPECT_EQ(parse_memory_limit(written), bytes) << written;
  };
  is("20GiB", 20 * kGiB, "20GiB");
  is("1.5GiB", 3 * kGiB / 2, "1536MiB");
  is("1.125TiB", 1152 * kGiB, "1152GiB");
  is("80GB", 80'000'000'000, "80GB");
  is("1.5TB", 1'500'000'000'000, "1500GB");
  is("2500MB", 2'500'000'000, "2500MB");
  is("2097152KiB", 2 * kGiB, "2GiB");
  is("2097153KiB", 2 * kGiB + 1024, "2097153KiB");
  is("1500000kB", 1'500'000'000, "1500MB");
  is("1500001kB", 1'500'001'000, "1500001kB");
  is("1GiB", kLeastMemoryLimit, "1GiB");
  is("16TiB", kMostMemoryLimit, "16TiB");
  is("none", 0, "none");
  EXPECT_EQ(memory_limit_text(kGiB + 1), "1073741825B") << "of a board; no user writes it";
}

TEST(MemoryLimitText, NothingElseIsALimit) {
  for (const char* const text : {"",
                                 "20",
                                 "0",
                                 "0GiB",
                                 "GiB",
                                 ".5TiB",
                                 "20.GiB",
                                 "1.2345GiB",
                                 "20 GiB",
                                 "-20GiB",
                                 "+20GiB",
                                 "20G",
                                 "20gib",
                                 "20Gib",
                                 "20KB",
                                 "1e3GiB",
                                 "20GiBx",
                                 "1.2.3GiB",
                                 "1023.999MiB",
                                 "16.001TiB",
                                 "17179869185KiB",
                                 "99999999999999999999GiB",
                                 "18446744073709551617GiB",
                                 "None",
                                 "none "}) {
    EXPECT_FALSE(parse_memory_limit(text)) << text;
    EXPECT_NE(check_memory_limit(text), "") << text;
  }
}

TEST(MemoryLimitText, SaysWhatIsWrong) {
  EXPECT_EQ(check_memory_limit("20GiB"), "");
  EXPECT_EQ(check_memory_limit("20"), "'20' has no unit: write 20GiB; a limit is 1GiB to 16TiB");
  EXPECT_EQ(check_memory_limit("0"), "'0' has no unit: write none; a limit is 1GiB to 16TiB");
  EXPECT_EQ(check_memory_limit("512MiB"),
            "'512MiB' is too little: a limit is 1GiB to 16TiB (the context of a program, which "
            "does not count, needs up to 0.82 GB more)");
  EXPECT_EQ(check_memory_limit("99TB"), "'99TB' is above every GPU: a limit is 1GiB to 16TiB");
  EXPECT_EQ(check_memory_limit("lots"), "'lots' is not one of " + std::string(kMemoryLimitForms));
}

// Prevents: a number of a message that is taken for a limit.
TEST(MemoryLimitText, AnInvalidNumberIsSeen) {
  EXPECT_TRUE(valid_memory_limit(0));
  EXPECT_TRUE(valid_memory_limit(kLeastMemoryLimit));
  EXPECT_TRUE(valid_memory_limit(kMostMemoryLimit));
  EXPECT_FALSE(valid_memory_limit(kLeastMemoryLimit - 1));
  EXPECT_FALSE(valid_memory_limit(kMostMemoryLimit + 1));
}

}  // namespace
}  // namespace sluice::shm
