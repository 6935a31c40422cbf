#include "server/memory/memory_options.hpp"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

std::uint64_t give_up_ns(std::uint64_t wedged_s) {
  const auto options = memory_options({}, 8ULL << 30, wedged_s * kSecondNs);
  EXPECT_TRUE(options.has_value());
  return options ? options->broker.give_up_ns : 0;
}

// Prevents: a request is refused for lack of memory just before the trainer that has this memory is
// ended.
TEST(MemoryOptions, AModelWaitsLongerThanATrainerMayTakeToObey) {
  EXPECT_EQ(give_up_ns(1), 10 * kSecondNs);
  EXPECT_EQ(give_up_ns(10), 15 * kSecondNs);
  EXPECT_EQ(give_up_ns(60), 65 * kSecondNs);
  EXPECT_EQ(memory_options({}, 8ULL << 30, 7 * kSecondNs)->wedged_ns, 7 * kSecondNs);
  EXPECT_FALSE(memory_options({}, 0, kSecondNs)) << "a device without free memory";
}

// Prevents: models and training take all of the device's memory, and the context of a trainer finds
// none.
TEST(MemoryOptions, AnAutomaticPoolLeavesAReserve) {
  constexpr std::uint64_t kGiB = 1ULL << 30;
  constexpr std::uint64_t kReserve = kGiB;
  const auto pool = [](const MemoryOptions& options, std::uint64_t free_bytes) {
    return memory_options(options, free_bytes, kSecondNs)->broker.pool_bytes;
  };
  EXPECT_EQ(pool({}, 8 * kGiB), 8 * kGiB - kReserve);
  EXPECT_EQ(pool({}, kReserve), 0U);
  EXPECT_EQ(pool({}, kReserve - 1), 0U) << "not a pool of all addresses";
  MemoryOptions given;
  given.pool_gb = 3;
  EXPECT_EQ(pool(given, 8 * kGiB), 3 * kGiB) << "the user's own choice";
}

// Prevents: the cache of cold models is sized without regard to the pool, or idle memory is kept a
// thousand times too long.
TEST(MemoryOptions, TheRestFollowsTheOptions) {
  MemoryOptions options;
  options.pool_gb = 4;
  options.max_idle_ms = 2.5;
  const auto made = memory_options(options, 8ULL << 30, kSecondNs);
  EXPECT_EQ(made->broker.cold_cache_bytes, 1ULL << 30);
  EXPECT_EQ(made->broker.max_idle_ns, 2'500'000U);
  options.cold_cache_gb = 0;
  EXPECT_EQ(memory_options(options, 8ULL << 30, kSecondNs)->broker.cold_cache_bytes, 0U);
  options.cold_cache_gb = 2;
  EXPECT_EQ(memory_options(options, 8ULL << 30, kSecondNs)->broker.cold_cache_bytes, 2ULL << 30);
}

int exit_code_of(const char* use_sta, MemoryOptions& options) {
  CLI::App app("test", "test");
  add_memory_options(app, options);
  const char* const args[] = {"test", "--use-sta", use_sta};
  return base::parse(app, 3, args).value_or(-1);
}

// Prevents: a mistyped value that silently means 1.
TEST(MemoryOptions, UseStaIsZeroOrOne) {
  MemoryOptions options;
  EXPECT_EQ(exit_code_of("0", options), -1);
  EXPECT_FALSE(options.use_sta);
  EXPECT_EQ(exit_code_of("1", options), -1);
  EXPECT_TRUE(options.use_sta);
  for (const char* wrong : {"2", "-1", "yes", "true", "01"}) {
    EXPECT_EQ(exit_code_of(wrong, options), base::kExitUsage) << wrong;
  }
}

}  // namespace
}  // namespace sluice::server
