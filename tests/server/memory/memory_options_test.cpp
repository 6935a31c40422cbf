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
