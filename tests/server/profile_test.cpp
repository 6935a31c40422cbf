// Prevents: a profile that the published parsers do not read, a p70 that is the median, handovers
// without their parts, and memory that grows with the life of the server.
#include "server/figures/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <sstream>
#include <thread>

#include "base/clock.hpp"

namespace sluice::server {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::Not;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kMb = 1U << 20U;

training::MemoryUse nothing() { return {}; }

std::string section(const std::string& text, const std::string& name) {
  const auto begin = text.find("[" + name + "]\n");
  if (begin == std::string::npos) return "";
  const auto first = text.find('\n', begin) + 1;
  return text.substr(first, text.find("\n\n", first - 1) - first);
}

TEST(Profile, PerfLinesAreThePublishedOnesWithATrueP70) {
  Profile profile(nothing);
  for (std::uint64_t i = 0; i <= 100; ++i) profile.took(PerfItem::kInferQueue, i * kMs);
  profile.took(PerfItem::kInferProcess, 2 * kMs);
  EXPECT_THAT(profile.text(), HasSubstr("[Perf Info]\n"
                                        "InferQueue: avg 50.0 max 100.0 min 0.0 cnt 101 | p99 99.0 "
                                        "p95 95.0 p90 90.0 p80 80.0 p70 70.0 p50 50.0\n"
                                        "InferProcess: avg 2.0 max 2.0 min 2.0 cnt 1 | p99 2.0"));
  EXPECT_THAT(profile.text(), Not(HasSubstr("TrainAdjust:")));
}

TEST(Profile, AHandoverIsALineAnAdjustmentAndEvents) {
  const std::uint64_t before_ns = base::monotonic_ns();
  Profile profile(nothing);
  training::Handover handover;
  handover.at_ns = base::monotonic_ns() + 50 * kMs;
  const double latest_ms = static_cast<double>(handover.at_ns - before_ns) / kMs;
  handover.bytes = 3 * kMb;
  handover.order_ns = kMs / 100;
  handover.obey.drop_ns = 2 * kMs;
  handover.obey.drain_ns = 3 * kMs;
  handover.obey.give_ns = 4 * kMs;
  handover.take_ns = 5 * kMs;
  handover.load_ns = 6 * kMs;
  profile.handover(handover);
  handover.obeyed = false;
  profile.handover(handover);
  const std::string text = profile.text();
  EXPECT_THAT(text, HasSubstr("TrainAdjust: avg 9.0 max 9.0 min 9.0 cnt 2"));
  EXPECT_THAT(text, Not(HasSubstr("InferAllocStorage: "))) << "took() reports every load";
  EXPECT_THAT(text, ContainsRegex(
                        "\n[0-9]+\\.[0-9]: 3\\.00 Mb order 0\\.010 drop 2\\.000 drain 3\\.000 give "
                        "4\\.000 take 5\\.000 load 6\\.000\n"));
  const auto line = text.rfind('\n', text.find(": 3.00 Mb order")) + 1;
  for (const double ms : {std::stod(text.substr(line)), std::stod(section(text, "Event Info"))}) {
    EXPECT_GE(ms, 49.9);
    EXPECT_LE(ms, latest_ms + 0.1);
  }
  EXPECT_THAT(text, HasSubstr("load 6.000 not obeyed\n"));
  const std::string events = section(text, "Event Info");
  EXPECT_THAT(events, ContainsRegex("^[0-9]+\\.[0-9]: TrainAdjustStart\n"));
  EXPECT_THAT(events, ContainsRegex("TrainAdjustStart\n(.*\n)*.*TrainAdjustEnd"));
  EXPECT_THAT(events, Not(HasSubstr("Infer"))) << "took() reports every load";
}

// Prevents: no event for a load that took no memory from training, and two for one that did.
TEST(Profile, EveryLoadAndEvictionIsAnEvent) {
  Profile profile(nothing);
  std::this_thread::sleep_for(std::chrono::milliseconds(8));
  profile.took(PerfItem::kInferQueue, kMs);
  profile.took(PerfItem::kInferAllocStorage, 4 * kMs);
  profile.took(PerfItem::kInferLoadParam, 6 * kMs);
  profile.evicted();
  std::istringstream lines(section(profile.text(), "Event Info"));
  std::map<std::string, double> at_ms;
  std::vector<double> order;
  std::string line;
  while (std::getline(lines, line)) {
    order.push_back(std::stod(line));
    at_ms[line.substr(line.find(' ') + 1)] = order.back();
  }
  EXPECT_THAT(at_ms, ElementsAre(Key("AddInfer"), Key("InferAllocStorageEnd"),
                                 Key("InferAllocStorageStart"), Key("InferExit"),
                                 Key("InferLoadParamEnd"), Key("InferLoadParamStart")));
  EXPECT_EQ(order.size(), 6U);
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(at_ms["AddInfer"], at_ms["InferAllocStorageStart"]);
  EXPECT_NEAR(at_ms["InferAllocStorageEnd"] - at_ms["InferAllocStorageStart"], 4, 0.11);
  EXPECT_NEAR(at_ms["InferLoadParamEnd"] - at_ms["InferLoadParamStart"], 6, 0.11);
}

TEST(Profile, MemoryIsSampledEvery5Ms) {
  std::atomic<std::uint64_t> infer{0};
  Profile profile([&] {
    const std::uint64_t now = ++infer;
    return training::MemoryUse{now * kMb, 2 * kMb, 3 * kMb + kMb / 2};
  });
  while (infer < 10) {
  }
  std::istringstream lines(section(profile.text(), "Memory Info"));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    // A sample may be late, but never early.
    EXPECT_GE(std::stod(line), 5 * count - 0.1) << line;
    ++count;
    EXPECT_THAT(
        line, HasSubstr(": Infer " + std::to_string(count) + ".00 Mb Train 2.00 Mb Total 3.50 Mb"));
  }
  EXPECT_GE(count, 9);
}

TEST(Profile, TheClockJoinsItWithRecords) {
  const double before = static_cast<double>(base::clock_ns(CLOCK_REALTIME)) / 1e6;
  Profile profile(nothing);
  const std::string text = profile.text();  // once: memory is added all the time
  const std::string clock = text.substr(text.find("[Clock Info]\n0.0: ") + 18);
  EXPECT_NEAR(std::stod(clock), before, 5'000);
}

}  // namespace
}  // namespace sluice::server
