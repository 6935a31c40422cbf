#include "server/workload/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <queue>
#include <thread>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace sluice::server::workload {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kMs = 1'000'000;

/// Answers each request after `delay_ms` (never, if negative) with `code`, in a thread of its own.
class FakeClient final : public Client {
 public:
  struct Seen {
    std::size_t request;
    Begin begin;
    std::uint64_t at_ns;
    std::uint64_t body_ns = 0;
  };

  explicit FakeClient(double delay_ms, Code code = Code::kOk)
      : delay_ms_(delay_ms), code_(code), thread_([this](const std::stop_token& t) { work(t); }) {}

  std::vector<InputSpec> inputs(const std::string& /*model*/) override { return {}; }
  std::size_t prepare(const PreparedRequest& /*request*/) override { return 0; }
  std::shared_ptr<Call> start(std::size_t request, Begin begin, Done done) override {
    std::this_thread::sleep_for(milliseconds(slow_start_ms));
    const std::lock_guard lock(mutex_);
    const std::size_t id = seen_.size();
    seen_.push_back({request, begin, base::monotonic_ns()});
    done_.push_back(std::move(done));
    most_ = std::max(most_.load(), ++outstanding_);
    if (begin != Begin::kHeaders) due(id);
    return std::make_shared<FakeCall>(*this, id);
  }

  [[nodiscard]] std::vector<Seen> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  [[nodiscard]] std::size_t most_outstanding() const { return most_; }
  [[nodiscard]] std::size_t cancelled() const { return cancelled_; }

  int slow_start_ms = 0;  ///< start() blocks that long.

 private:
  struct Due {
    std::uint64_t at_ns;
    std::size_t id;
    bool operator>(const Due& other) const { return at_ns > other.at_ns; }
  };
  class FakeCall final : public Call {
   public:
    FakeCall(FakeClient& client, std::size_t id) : client_(client), id_(id) {}
    void send_body() override {
      const std::lock_guard lock(client_.mutex_);
      client_.seen_[id_].body_ns = base::monotonic_ns();
      client_.due(id_);
    }
    void cancel() override {
      const std::lock_guard lock(client_.mutex_);
      ++client_.cancelled_;
      client_.due_.push({0, id_});
    }

   private:
    FakeClient& client_;
    std::size_t id_;
  };

  void due(std::size_t id) {
    if (delay_ms_ < 0) return;
    due_.push({base::monotonic_ns() + static_cast<std::uint64_t>(delay_ms_ * kMs), id});
  }

  void work(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Done done;
      bool cancelled = false;
      {
        const std::lock_guard lock(mutex_);
        if (!due_.empty() && due_.top().at_ns <= base::monotonic_ns()) {
          cancelled = due_.top().at_ns == 0;
          done = std::exchange(done_[due_.top().id], nullptr);
          due_.pop();
          if (done) --outstanding_;
        }
      }
      if (done) {
        const Code code = cancelled ? Code::kCancelled : code_;
        done({code, code == Code::kOk ? "" : "as asked", base::monotonic_ns(), {}});
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  }

  const double delay_ms_;
  const Code code_;
  mutable std::mutex mutex_;
  std::vector<Seen> seen_;
  std::vector<Done> done_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::size_t outstanding_ = 0;
  std::atomic<std::size_t> most_ = 0;
  std::atomic<std::size_t> cancelled_ = 0;
  std::jthread thread_;
};

Worker closed_loop(std::size_t outstanding, double interval_ms = 0) {
  return {"m", ClosedLoop{{{}, {outstanding}}, interval_ms}};
}
Worker replay(std::vector<std::uint64_t> due_ms) {
  for (std::uint64_t& due : due_ms) due *= kMs;
  return {"m", Replay{std::move(due_ms)}};
}

LoadResult run(FakeClient& client, const std::vector<Worker>& workers, const LoadOptions& options,
               int interrupt_fd = -1) {
  std::vector<std::size_t> requests;
  for (std::size_t i = 0; i < workers.size(); ++i) requests.push_back(i);
  return run_load(client, workers, requests, options, interrupt_fd, {});
}

std::size_t count_if(const LoadResult& result, const std::function<bool(const Record&)>& test) {
  return static_cast<std::size_t>(
      std::count_if(result.records.begin(), result.records.end(), test));
}

TEST(Load, ClosedLoopKeepsItsNumberOutstanding) {
  FakeClient client(2);
  const LoadResult result = run(client, {closed_loop(3)}, {.count = 60});
  EXPECT_EQ(client.most_outstanding(), 3U);
  EXPECT_EQ(result.records.size(), 60U);
  EXPECT_EQ(result.ended, Ended::kDone);
}

// Prevents: a client that never ends, because its time was over before all of its first requests
// had left.
TEST(Load, TheTimeMayEndWhileTheFirstRequestsAreSent) {
  FakeClient client(0);
  client.slow_start_ms = 20;
  const LoadResult result = run(client, {closed_loop(1000)}, {.duration_s = 0.05});
  EXPECT_LT(result.records.size(), 10U);
}

TEST(Load, RunEndsAtItsTimeAndWaitsForAnswers) {
  FakeClient client(50);
  const LoadResult result = run(client, {closed_loop(2)}, {.duration_s = 0.12});
  EXPECT_EQ(result.ended, Ended::kTime);
  EXPECT_EQ(result.sending_s, 0.12);
  EXPECT_EQ(count_if(result, [](const Record& r) { return r.code == Code::kOk; }),
            result.records.size());
  EXPECT_EQ(client.cancelled(), 0U);
}

TEST(Load, ARunWithATimeLastsThatLongAlsoWhenArrivalsEnd) {
  FakeClient client(0);
  const LoadResult result = run(client, {replay({1})}, {.duration_s = 0.1});
  EXPECT_EQ(result.ended, Ended::kTime);
  EXPECT_EQ(result.sending_s, 0.1);
}

TEST(Load, IntervalIsAPauseAfterEachAnswer) {
  FakeClient client(1);
  const LoadResult result = run(client, {closed_loop(1, 20)}, {.count = 5});
  ASSERT_EQ(result.records.size(), 5U);
  for (std::size_t i = 1; i < result.records.size(); ++i) {
    EXPECT_GE(result.records[i].sent_ns, result.records[i - 1].end_ns + 20 * kMs);
  }
}

TEST(Load, ClosedLoopDoesNotSpinOnErrors) {
  FakeClient client(0, Code::kUnavailable);
  const LoadResult result = run(client, {closed_loop(1)}, {.duration_s = 0.1});
  EXPECT_LE(result.records.size(), 11U);
  EXPECT_EQ(result.messages[0].at(Code::kUnavailable), "as asked");
}

std::size_t most_within(const LoadResult& result, std::uint64_t from_ms, std::uint64_t to_ms) {
  std::size_t most = 0;
  for (const Record& at : result.records) {
    if (at.sent_ns < from_ms * kMs || at.sent_ns >= to_ms * kMs) continue;
    most = std::max(most, count_if(result, [&](const Record& r) {
                      return r.sent_ns <= at.sent_ns && r.end_ns > at.sent_ns;
                    }));
  }
  return most;
}

TEST(Load, NumberOutstandingFollowsItsSteps) {
  bool all_seen = false;
  // A busy machine may send nothing in one of the three times: then the run is repeated.
  for (int i = 0; i < 20 && !all_seen; ++i) {
    FakeClient client(2);
    const LoadResult result =
        run(client, {{"m", ClosedLoop{{{0.1, 0.2}, {1, 4, 1}}}}}, {.duration_s = 0.4});
    const std::size_t first = most_within(result, 0, 95);
    const std::size_t second = most_within(result, 110, 190);
    const std::size_t third = most_within(result, 300, 400);
    EXPECT_LE(first, 1U);
    EXPECT_LE(second, 4U);
    all_seen = first == 1 && second == 4 && third == 1;
  }
  EXPECT_TRUE(all_seen);
}

TEST(Load, ClosedLoopThatBeginsWithNoneOutstandingStartsLater) {
  FakeClient client(1);
  const LoadResult result =
      run(client, {{"m", ClosedLoop{{{0.05}, {0, 1}}}}}, {.duration_s = 10, .count = 1});
  ASSERT_FALSE(result.records.empty());
  EXPECT_GE(result.records.front().sent_ns, 50 * kMs);
}

TEST(Load, OpenLoopNeverWaitsForAnswers) {
  FakeClient client(-1);
  std::vector<std::uint64_t> due;
  for (std::uint64_t i = 0; i < 20; ++i) due.push_back(i * 2);
  const LoadResult result = run(client, {replay(due)}, {.drain_s = 0.05});
  EXPECT_EQ(client.most_outstanding(), 20U);
  EXPECT_EQ(result.records.size(), 20U);
}

TEST(Load, LatencyOfARequestThatIsSentLateCountsFromItsDueTime) {
  // Coordinated omission: a sender that is held up would otherwise hide the delay.
  FakeClient client(0);
  client.slow_start_ms = 30;
  const LoadResult result = run(client, {replay({1, 2})}, {});
  ASSERT_EQ(result.records.size(), 2U);
  const Record& second = result.records[1];
  EXPECT_EQ(second.due_ns, 2 * kMs);
  EXPECT_GE(second.sent_ns, 31 * kMs);
  EXPECT_GE(second.end_ns - second.due_ns, 58 * kMs);
}

TEST(Load, TooManyOutstandingRequestsAreCountedNotSent) {
  FakeClient client(-1);
  const LoadResult result =
      run(client, {replay({0, 1, 2, 3, 4})}, {.max_outstanding = 2, .drain_s = 0.05});
  EXPECT_EQ(client.seen().size(), 2U);
  EXPECT_EQ(count_if(result, [](const Record& r) { return !r.sent; }), 3U);
  EXPECT_EQ(count_if(result, [](const Record& r) { return r.sent && !r.code; }), 2U)
      << "what has no answer at the end is no error of the server";
  EXPECT_EQ(client.cancelled(), 2U);
}

TEST(Load, CountIsOfAllModelsInTheOrderOfTheirDueTimes) {
  FakeClient client(0);
  const LoadResult result = run(client, {replay({10, 20, 30}), replay({11, 12, 13})}, {.count = 4});
  EXPECT_EQ(result.ended, Ended::kDone);
  std::vector<std::size_t> order;
  for (const auto& seen : client.seen()) order.push_back(seen.request);
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 1, 1));
}

TEST(Load, AnnouncementIsSentBeforeTheBodyWhichIsDue) {
  FakeClient client(0);
  const LoadResult result = run(client, {replay({3000})}, {.announce_ns = 2900 * kMs});
  const auto seen = client.seen().at(0);
  EXPECT_EQ(seen.begin, Client::Begin::kHeaders);
  EXPECT_GE(seen.body_ns - seen.at_ns, 200 * kMs);
  EXPECT_EQ(result.records[0].due_ns, 3000 * kMs);
  EXPECT_GE(result.records[0].sent_ns, 3000 * kMs);
}

TEST(Load, AnnouncedClosedLoopIsDueAfterItsHeaders) {
  FakeClient client(1);
  const LoadResult result = run(client, {closed_loop(1)}, {.count = 2, .announce_ns = 1500 * kMs});
  for (const auto& seen : client.seen()) {
    EXPECT_EQ(seen.begin, Client::Begin::kHeaders);
    EXPECT_GE(seen.body_ns - seen.at_ns, 25 * kMs);
  }
  std::uint64_t headers_ns = 0;
  for (const Record& record : result.records) {
    EXPECT_GE(record.due_ns, headers_ns + 1500 * kMs);
    EXPECT_GE(record.sent_ns, record.due_ns);
    headers_ns = record.end_ns;
  }
}

TEST(Load, AnnouncementWithoutTimeOnlyNamesTheModel) {
  FakeClient client(0);
  (void)run(client, {closed_loop(1)}, {.count = 1, .announce_ns = 0});
  EXPECT_EQ(client.seen().at(0).begin, Client::Begin::kNamed);
  FakeClient plain(0);
  (void)run(plain, {closed_loop(1)}, {.count = 1});
  EXPECT_EQ(plain.seen().at(0).begin, Client::Begin::kWhole);
}

TEST(Load, InterruptEndsAtOnceWithWhatWasMeasured) {
  FakeClient client(-1);
  const base::Fd interrupt(eventfd(1, 0));
  const auto start = steady_clock::now();
  const LoadResult result = run(client, {closed_loop(2)}, {.duration_s = 60}, interrupt.get());
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(result.ended, Ended::kInterrupted);
  EXPECT_EQ(result.records.size(), 2U);
  EXPECT_EQ(client.cancelled(), 2U);
}

}  // namespace
}  // namespace sluice::server::workload
