// What the gate is told of requests. The functions of the interposer are replaced by this
// program's.
#include "server/requests/announcer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

namespace {
std::vector<std::string> g_calls;
std::uint64_t g_next = 100;

/// Other tests of this program call from several threads.
void note(const std::string& call) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  g_calls.push_back(call);
}
}  // namespace

// sluice.h looks the functions up among the symbols of the whole process.
extern "C" {
__attribute__((visibility("default"))) std::uint64_t sluice_v1_job_announce_on(
    int gpu, std::uint64_t start) {
  note("announce " + std::to_string(start) + " on " + std::to_string(gpu));
  return g_next++;
}
__attribute__((visibility("default"))) void sluice_v1_job_cancel(std::uint64_t job) {
  if (job != 0) note("cancel " + std::to_string(job));
}
__attribute__((visibility("default"))) std::uint64_t sluice_v1_job_begin_on(
    int gpu, std::uint64_t announced) {
  note("begin " + std::to_string(announced) + " on " + std::to_string(gpu));
  return 7;
}
__attribute__((visibility("default"))) void sluice_v1_job_end(std::uint64_t job) {
  note("end " + std::to_string(job));
}
}

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kMs = 1'000'000;

class AnnouncerTest : public testing::Test {
 protected:
  AnnouncerTest() {
    g_calls.clear();
    g_next = 100;
  }
  /// A request whose job begins `notice_ns` after its headers.
  void learn(std::uint64_t notice_ns, const std::string& model = "m") {
    const std::uint64_t id = announcer_.headers(0, model, 600'000, kMs);
    announcer_.begin_busy(0, id, kMs + notice_ns);
    announcer_.end_busy(0);
    g_calls.clear();
  }
  Announcer announcer_;
};

TEST_F(AnnouncerTest, TheFirstRequestOfAKindIsNotAnnounced) {
  const std::uint64_t id = announcer_.headers(0, "m", 600'000, 0);
  announcer_.begin_busy(0, id, kMs);
  announcer_.end_busy(0);
  EXPECT_THAT(g_calls, ElementsAre("begin 0 on 0", "end 7"));
}

TEST_F(AnnouncerTest, TheNextOneIsAnnouncedForWhenItWillBegin) {
  learn(kMs);
  const std::uint64_t id = announcer_.headers(0, "m", 600'000, 50 * kMs);
  EXPECT_EQ(announcer_.announced_ns(id), kMs);
  announcer_.begin_busy(0, id, 51 * kMs);
  announcer_.end_busy(0);
  EXPECT_THAT(g_calls, ElementsAre("announce 51000000 on 0", "begin 100 on 0", "end 7"));
}

TEST_F(AnnouncerTest, ANoticeThatIsTooShortIsNotGiven) {
  learn(Announcer::kLeastNs - 1);
  static_cast<void>(announcer_.headers(0, "m", 600'000, 50 * kMs));
  EXPECT_THAT(g_calls, IsEmpty());
}

// Prevents: a comparison without announcements in which there are some, or no jobs.
TEST_F(AnnouncerTest, NothingIsAnnouncedIfThatIsOff) {
  Announcer off(false);
  for (const std::uint64_t at : {kMs, 10 * kMs}) {
    const std::uint64_t id = off.headers(0, "m", 600'000, at);
    EXPECT_EQ(off.announced_ns(id), 0);
    off.begin_busy(0, id, at + 5 * kMs);
    off.end_busy(0);
  }
  EXPECT_THAT(g_calls, ElementsAre("begin 0 on 0", "end 7", "begin 0 on 0", "end 7"));
}

TEST_F(AnnouncerTest, KindsOfRequestsAreLearnedApart) {
  learn(kMs);
  static_cast<void>(announcer_.headers(0, "m", 1'000, 0));
  static_cast<void>(announcer_.headers(0, "other", 600'000, 0));
  EXPECT_THAT(g_calls, IsEmpty());
}

TEST_F(AnnouncerTest, NothingIsAnnouncedInABusyPeriod) {
  learn(kMs);
  announcer_.begin_busy(0, announcer_.headers(0, "m", 600'000, 0), kMs);
  g_calls.clear();
  static_cast<void>(announcer_.headers(0, "m", 600'000, 2 * kMs));
  EXPECT_THAT(g_calls, IsEmpty());
}

// Prevents: a busy GPU whose jobs keep another one from being told of its own, or end them.
TEST_F(AnnouncerTest, EachGpuHasBusyPeriodsOfItsOwn) {
  learn(kMs);
  announcer_.begin_busy(0, 0, kMs);
  const std::uint64_t id = announcer_.headers(1, "m", 600'000, 2 * kMs);
  announcer_.begin_busy(1, id, 3 * kMs);
  announcer_.end_busy(0);
  announcer_.end_busy(0);
  static_cast<void>(announcer_.headers(1, "m", 600'000, 4 * kMs));
  announcer_.end_busy(1);
  EXPECT_THAT(g_calls, ElementsAre("begin 0 on 0", "announce 3000000 on 1", "begin 100 on 1",
                                   "end 7", "end 7"));
}

// Prevents: gates that stay closed on the GPU on which a request was expected, and a job that
// begins with an announcement of another GPU.
TEST_F(AnnouncerTest, ARequestThatRunsElsewhereIsCalledOff) {
  learn(kMs);
  const std::uint64_t id = announcer_.headers(1, "m", 600'000, 2 * kMs);
  announcer_.begin_busy(0, id, 3 * kMs);
  announcer_.end_busy(0);
  EXPECT_THAT(g_calls, ElementsAre("announce 3000000 on 1", "cancel 100", "begin 0 on 0", "end 7"));
}

// Prevents: programs on a GPU that are held for a model on the CPU.
TEST_F(AnnouncerTest, TheCpuHasNoJobs) {
  learn(kMs);
  const std::uint64_t id = announcer_.headers(kNoGpu, "m", 600'000, 2 * kMs);
  announcer_.begin_busy(kNoGpu, id, 3 * kMs);
  announcer_.end_busy(kNoGpu);
  EXPECT_THAT(g_calls, ElementsAre("end 0"));
}

// Prevents: gates of one GPU that close for a request that goes to another one.
TEST_F(AnnouncerTest, ARequestThatGoesElsewhereIsCalledOffAtOnce) {
  learn(kMs);
  const std::uint64_t id = announcer_.headers(0, "m", 600'000, 0);
  announcer_.goes_to(id, 0);
  EXPECT_EQ(announcer_.announced_ns(id), kMs);
  announcer_.goes_to(id, 1);
  EXPECT_EQ(announcer_.announced_ns(id), 0U);
  EXPECT_THAT(g_calls, ElementsAre("announce 1000000 on 0", "cancel 100"));
  announcer_.goes_to(12345, 1);
  announcer_.begin_busy(1, id, kMs);
  EXPECT_THAT(g_calls, ElementsAre("announce 1000000 on 0", "cancel 100", "begin 0 on 1"));
}

TEST_F(AnnouncerTest, AForgottenRequestIsCalledOff) {
  learn(kMs);
  const std::uint64_t id = announcer_.headers(0, "m", 600'000, 0);
  announcer_.forget(id);
  announcer_.forget(id);
  announcer_.forget(12345);
  EXPECT_THAT(g_calls, ElementsAre("announce 1000000 on 0", "cancel 100"));
}

}  // namespace
}  // namespace sluice::server
