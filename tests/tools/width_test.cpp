// `--sms`: what is a width, and what `auto` chooses from two looks at the board.
#include "tools/exec/width.hpp"

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

using Kind = Width::Kind;

TEST(Width, IsAutoAllAPercentageOrACount) {
  EXPECT_EQ(parse_width("auto")->kind, Kind::kAuto);
  EXPECT_EQ(parse_width("all")->kind, Kind::kAll);
  EXPECT_EQ(parse_width("50%")->kind, Kind::kPercent);
  EXPECT_EQ(parse_width("50%")->number, 50);
  EXPECT_EQ(parse_width("100%")->number, 100);
  EXPECT_EQ(parse_width("66")->kind, Kind::kSms);
  EXPECT_EQ(parse_width("66")->number, 66);
  for (const char* text : {"", "0", "0%", "101%", "-3", "50 %", "50%%", "1e3", "half", "3.5%", "%",
                           "99999999999", "66 SMs", "+5"}) {
    EXPECT_FALSE(parse_width(text)) << text;
    EXPECT_NE(check_width(text), "") << text;
  }
}

TEST(Width, InSmsIsThePercentageThatHasAtLeastSoMany) {
  for (int all : {1, 2, 56, 108, 114, 132, 144, 148}) {
    for (int sms = 1; sms <= all; ++sms) {
      const int percent = percent_of_sms(sms, all);
      EXPECT_GE(percent * all, sms * 100) << sms << " of " << all;
      EXPECT_LT((percent - 1) * all, sms * 100) << sms << " of " << all;
      EXPECT_LE(percent, 100);
    }
  }
  EXPECT_EQ(percent_of_sms(66, 132), 50);
}

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1000 * kMs;

shm::ClientSnapshot client(int priority) {
  shm::ClientSnapshot client;
  client.pid = 7;
  client.priority = priority;
  client.state = shm::SlotState::kLive;
  client.attached_ns = 100 * kSecond;
  return client;
}

/// Two looks, 250 ms apart, at a client that had jobs for `busy_ms` of these.
bool is_busy(shm::ClientSnapshot client, std::uint64_t busy_ms, int below = 0) {
  shm::Snapshot before;
  before.taken_ns = 1000 * kSecond;
  before.clients = {client};
  shm::Snapshot now = before;
  now.taken_ns += 250 * kMs;
  now.clients[0].attached_ns += 250 * kMs;
  now.clients[0].jobs_total_ns += busy_ms * kMs;
  return busy_above(before, now, below) != nullptr;
}

TEST(Width, AJobOfAMinuteIsOfAProgramThatIsNeverIdle) {
  shm::ClientSnapshot server = client(1);
  server.active = true;
  server.active_ns = 61 * kSecond;
  EXPECT_TRUE(is_busy(server, 0));
  EXPECT_FALSE(is_busy(server, 0, 1)) << "it is not above";
  server.active_ns = 59 * kSecond;
  EXPECT_FALSE(is_busy(server, 0)) << "it may have been idle within the minute";
}

TEST(Width, OneJobAfterTheOtherIsWithoutAPause) {
  EXPECT_TRUE(is_busy(client(1), 240));
  EXPECT_FALSE(is_busy(client(1), 100)) << "idle between its requests";
  EXPECT_FALSE(is_busy(client(0), 240));
  shm::ClientSnapshot young = client(1);
  young.attached_ns = 30 * kSecond;
  EXPECT_FALSE(is_busy(young, 240));
  shm::ClientSnapshot dead = client(1);
  dead.state = shm::SlotState::kDead;
  EXPECT_FALSE(is_busy(dead, 240));
}

TEST(Width, AClientThatCameBetweenTheLooksHasNoHistory) {
  shm::Snapshot now;
  now.taken_ns = 1000 * kSecond;
  now.clients = {client(1)};
  now.clients[0].jobs_total_ns = 99 * kSecond;
  EXPECT_EQ(busy_above({}, now, 0), nullptr);
}

}  // namespace
}  // namespace sluice::tools
