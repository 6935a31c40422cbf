// The line about what a session has gained: numbers that nobody has measured, 100 % that is not
// all, and a line that does not fit.
#include "shm/gain.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/board_test.hpp"
#include "tools/status/format.hpp"
#include "tools/status/json.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kHour = 3600 * kSecond;
constexpr std::uint64_t kTaken = 100 * kHour;
constexpr std::size_t kWide = 200;

/// Since three hours: 83 % busy, 61 % of it best effort.
shm::Gain usual() {
  return {.since_ns = kTaken - 3 * kHour,
          .shared_ns = 3 * kHour,
          .busy_ns = kHour / 100 * 249,
          .best_effort_ns = kHour / 100 * 152,
          .idle_before_ns = kHour / 100 * 152,
          .measured = true,
          .p99_ns = 12'300'000,
          .percent_of_alone = 110,
          .jobs_kept = 9921};
}

std::vector<std::string> notes(const shm::Gain& gain, std::size_t columns = kWide) {
  shm::Snapshot snapshot;
  snapshot.taken_ns = kTaken;
  snapshot.controller_lives = true;
  snapshot.gain = gain;
  snapshot.devices.resize(1);
  return gain_notes(snapshot, columns);
}

/// Without the time, which is that of this machine.
std::string line(const shm::Gain& gain) {
  const std::vector<std::string> found = notes(gain);
  if (found.size() != 1) return std::to_string(found.size()) + " lines";
  static const std::regex kSince("since ([0-9]{2} [A-Z][a-z]{2} )?[0-9]{2}:[0-9]{2}: ");
  EXPECT_TRUE(std::regex_search(found[0], kSince)) << found[0];
  return std::regex_replace(found[0], kSince, "");
}

TEST(GainLine, SaysLatencyTargetUseAndHours) {
  EXPECT_EQ(line(usual()),
            "critical p99 1.10 x alone (target kept 99.2 %), GPU busy 83 %, 61 % of it best "
            "effort: ~12 GPU-hours a day that were idle before");
}

TEST(GainLine, LeavesOutWhatIsNotKnown) {
  shm::Gain gain = usual();
  gain.percent_of_alone = 0;
  gain.jobs_kept = 0;
  gain.measured = false;
  EXPECT_EQ(line(gain).substr(0, 33), "critical p99 12.3ms, GPU busy ~83");
  gain.p99_ns = 0;
  EXPECT_EQ(line(gain).substr(0, 13), "GPU busy ~83 ");
  gain.best_effort_ns = 0;
  EXPECT_EQ(line(gain), "GPU busy ~83 %, none of it best effort");
  gain.best_effort_ns = shm::Gain::kUnknown;
  EXPECT_EQ(line(gain), "GPU busy ~83 %, best effort's part is not known");
  gain.busy_ns = 0;
  EXPECT_EQ(line(gain), "how much of the GPU best effort uses is not known");
  gain.best_effort_ns = 0;
  EXPECT_TRUE(notes(gain).empty());
  gain.jobs_kept = 10'001;
  EXPECT_EQ(line(gain), "critical target kept 100.0 %");
  gain.jobs_kept = 10'000;
  EXPECT_EQ(line(gain), "critical target kept 99.9 %") << "not all";
}

// Prevents: GPU-hours a day from half a minute, and numbers of the first seconds that jump.
TEST(GainLine, SaysTheTimeSoFarInTheFirstHour) {
  shm::Gain gain = usual();
  gain.since_ns = kTaken - kHour / 2;
  gain.best_effort_ns = gain.idle_before_ns = 12 * 60 * kSecond;
  EXPECT_NE(line(gain).find("best effort: ~12 min that were idle before"), std::string::npos);
  gain.since_ns = kTaken - 9 * kSecond;
  EXPECT_TRUE(notes(gain).empty());
  gain.since_ns = kTaken + kSecond;
  EXPECT_TRUE(notes(gain).empty()) << "a time to come";
  EXPECT_TRUE(notes({}).empty());
}

// Prevents: time that was taken from a server which is never idle, called idle.
TEST(GainLine, SaysWhatWasIdleBeforeAndWhatWasNot) {
  shm::Gain gain = usual();
  gain.since_ns = kTaken - kHour / 2;
  gain.best_effort_ns = 12 * 60 * kSecond;
  gain.idle_before_ns = 8 * 60 * kSecond;
  EXPECT_NE(line(gain).find("best effort: ~8 min that were idle before, ~4 min while critical work "
                            "wanted the GPU"),
            std::string::npos)
      << line(gain);
  gain.idle_before_ns = 0;
  EXPECT_NE(line(gain).find("best effort: ~12 min while critical work wanted the GPU"),
            std::string::npos)
      << line(gain);
}

TEST(GainLine, FitsATerminal) {
  const std::vector<std::string> two = notes(usual(), 80);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_TRUE(two[0].ends_with("(target kept 99.2 %), GPU busy 83 %,")) << two[0];
  EXPECT_EQ(two[1], "61 % of it best effort: ~12 GPU-hours a day that were idle before");
  for (std::size_t columns = 20; columns < kWide; columns += 7) {
    for (const std::string& note : notes(usual(), columns)) EXPECT_LE(note.size(), columns);
  }
}

TEST(GainLine, HasADateWhereTheTimeMayBeOfAnotherDay) {
  shm::Gain gain = usual();
  static const std::regex kDate("^since [0-9]{2} [A-Z][a-z]{2} [0-9]{2}:[0-9]{2}: ");
  EXPECT_FALSE(std::regex_search(notes(gain)[0], kDate));
  gain.since_ns = kTaken - 30 * kHour;
  EXPECT_TRUE(std::regex_search(notes(gain)[0], kDate)) << notes(gain)[0];
}

class GainStatus : public test::BoardTest {};

TEST_F(GainStatus, IsInTextAndJson) {
  const auto json = [&] { return status_object(shm::take_snapshot(*board_, kTaken), "s")["gain"]; };
  EXPECT_TRUE(json().is_null());
  shm::gain_words(*board_).store(usual());
  EXPECT_TRUE(json().is_null()) << "the controller is gone, and nobody counts";
  board_->heartbeat_ns.store(kTaken);
  EXPECT_EQ(json()["seconds"], 3 * 3600.0);
  EXPECT_EQ(json()["busy_from"], "nvml");
  EXPECT_EQ(json()["best_effort_ns"], usual().best_effort_ns);
  EXPECT_EQ(json()["idle_before_ns"], usual().idle_before_ns);
  EXPECT_EQ(json()["times_alone"], 1.1);
  EXPECT_EQ(json()["target_kept"], 0.992);
  EXPECT_NE(status_text(shm::take_snapshot(*board_, kTaken), "s").find("61 % of it best effort"),
            std::string::npos);
  shm::gain_words(*board_).store(
      {.since_ns = kTaken - kHour, .shared_ns = kHour, .busy_ns = 0, .p99_ns = 0});
  EXPECT_TRUE(json()["busy_ns"].is_null());
  EXPECT_TRUE(json()["best_effort_ns"].is_null());
  EXPECT_TRUE(json()["idle_before_ns"].is_null());
  EXPECT_TRUE(json()["times_alone"].is_null());
  EXPECT_TRUE(json()["target_kept"].is_null());
}

}  // namespace
}  // namespace sluice::tools
