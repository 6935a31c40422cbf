// The records of requests. Prevents: a key with the time of another one, or in another unit.
#include "server/requests/records.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "tests/server/asked.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::server {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMs = 1'000'000;

class RecordsTest : public testing::Test {
 protected:
  RecordsTest() {
    execution_.model = std::make_shared<Model>(model("a", 4));
    execution_.model->limits.measured(2, 7 * kMs);
    execution_.items = 3;
    execution_.runs = {{now_ + 20 * kMs, now_ + 25 * kMs}, {now_ + 30 * kMs, now_ + 37 * kMs}};
    execution_.turn_wait_ns = 4 * kMs;
    execution_.cold_ns = 6 * kMs;
    pending_.request.id = "r";
    pending_.request.trace = "00-1-2-01";
    pending_.items = 2;
    pending_.announced_ns = 1500;
    pending_.times.arrived_ns = now_;
    pending_.times.queued_ns = now_ + kMs;
    pending_.times.ended_ns = now_ + 40 * kMs;
  }

  json record() {
    const test::TempFolder folder;
    Records records(folder.file("records"), "FIFO", "cuda:1");
    records.set_policy("EDF");
    records.write(execution_, pending_, {Code::kDeadlineExceeded, "late"});
    return json::parse(test::read_file(folder.file("records")));
  }

  const std::uint64_t now_ = base::monotonic_ns();
  Execution execution_;
  Pending pending_;
};

TEST_F(RecordsTest, EachKeyHasItsValue) {
  const double real_ms = static_cast<double>(base::clock_ns(CLOCK_REALTIME)) / 1e6;
  json record = this->record();
  const double begin_ms = record["recv_time"];
  EXPECT_NEAR(begin_ms, real_ms, 60'000);
  auto after_begin = [&](const json& time) { return time.get<double>() - begin_ms; };
  // A double of a real time in ms is exact to less than 0.001 ms.
  EXPECT_NEAR(after_begin(record["queued_time"]), 1, 0.01);
  EXPECT_NEAR(after_begin(record["finish_time"]), 40, 0.01);
  const json runs = record["child_model_run_time"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_NEAR(after_begin(runs[0][0]), 20, 0.01);
  EXPECT_NEAR(after_begin(runs[1][1]), 37, 0.01);
  for (const char* key : {"recv_time", "queued_time", "finish_time", "child_model_run_time"}) {
    record.erase(key);
  }
  EXPECT_EQ(record, (json{{"model_name", "a"},
                          {"total_cost_by_ms", 40.0},
                          {"child_model_execute_cost_by_ms", {5.0, 7.0}},
                          {"execute_cost", 12.0},
                          {"wait_cost", 28.0},
                          {"limit_cost_by_ms", 7.0},
                          {"id", "r"},
                          {"batch", 3},
                          {"train_wait_ms", 4.0},
                          {"announced_us", 1.5},
                          {"cold_ms", 6.0},
                          {"result", "deadline_exceeded"},
                          {"traceparent", "00-1-2-01"},
                          {"deadline_ms", nullptr},
                          {"device", "cpu"},
                          {"gpu", nullptr},
                          {"tag", "EDF"}}));
}

TEST_F(RecordsTest, DeadlineAndDeviceAreThoseOfTheRequest) {
  execution_.model->config.gpus = {1};
  pending_.deadline_ns = now_ + 100 * kMs;
  json record = this->record();
  EXPECT_EQ(record["deadline_ms"], 100.0);
  EXPECT_EQ(record["device"], "cuda:1");
  EXPECT_EQ(record["gpu"], 1);
  pending_.deadline_ns = now_ - kMs;
  EXPECT_EQ(this->record()["deadline_ms"], -1.0) << "it was late when it came";
}

}  // namespace
}  // namespace sluice::server
