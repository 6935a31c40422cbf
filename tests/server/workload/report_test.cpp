#include "server/workload/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace sluice::server::workload {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMs = 1'000'000;

Record answered(std::uint64_t due_ms, std::uint64_t latency_ms, Code code = Code::kOk) {
  Record record;
  record.code = code;
  record.due_ns = due_ms * kMs;
  record.sent_ns = due_ms * kMs;
  record.end_ns = (due_ms + latency_ms) * kMs;
  return record;
}

/// Latencies of 0 to 100 ms, so that each percentile is its own number.
std::vector<Record> hundred() {
  std::vector<Record> records;
  for (std::uint64_t i = 0; i <= 100; ++i) records.push_back(answered(1000 - i, (i * 37) % 101));
  return records;
}

TEST(Report, TableIsThePublishedOneToTheLetter) {
  const Summary summary = summarise(hundred(), 0, {});
  EXPECT_EQ(table("resnet50", summary, 10),
            R"(==============================================================
|               InferWorker resnet50 (10 sec)                |
| cnt: 101  | ltc.avg: 50.0 | ltc.max: 100.0 | thpt: 10.1r/s | 
| p99: 99.0 | p95: 95.0     | p90: 90.0      | p85: 85.0     | 
| p80: 80.0 | p75: 75.0     | p70: 70.0      | p65: 65.0     | 
| p60: 60.0 | p55: 55.0     | p50: 50.0      | p45: 45.0     | 
| p40: 40.0 | p35: 35.0     | p30: 30.0      | p25: 25.0     | 
| p20: 20.0 | p15: 15.0     | p10: 10.0      | p5: 5.0       | 
==============================================================
)");
}

TEST(Report, TableOfAModelWithoutAnswers) {
  EXPECT_EQ(table("m-1", {}, 10), "[InferWorker TRACE m-1] no inference record\n");
}

TEST(Report, LongNameDoesNotBreakTheTable) {
  const std::string name(200, 'x');
  const std::string text = table(name, summarise({answered(0, 1)}, 0, {}), 1);
  EXPECT_THAT(text, testing::HasSubstr("|InferWorker " + name + " (1 sec)|\n"));
}

TEST(Report, TraceListsGoodAnswersInTheOrderOfTheirDueTimes) {
  std::vector<Record> records{answered(20, 5), answered(3, 40),
                              answered(4, 1, Code::kResourceExhausted)};
  records.push_back(answered(1, 1));
  records.back().worker = 1;
  EXPECT_EQ(trace("m", records, 0),
            "[InferWorker TRACE m] request_time(ms), response_time(ms), latency(ms)\n"
            "3.0, 43.0, 40.0\n"
            "20.0, 25.0, 5.0\n");
}

std::vector<Record> mixed() {
  Record not_sent;
  not_sent.sent = false;
  not_sent.due_ns = 7 * kMs;
  Record unanswered;
  unanswered.due_ns = 8 * kMs;
  unanswered.sent_ns = 10 * kMs;
  return {answered(0, 10),
          answered(1, 30),
          answered(2, 1, Code::kResourceExhausted),
          answered(3, 1, Code::kResourceExhausted),
          answered(4, 50, Code::kDeadlineExceeded),
          answered(5, 1, Code::kInternal),
          not_sent,
          unanswered};
}

TEST(Report, SummaryCountsEachKindOnce) {
  const Summary summary = summarise(mixed(), 0, 20);
  EXPECT_THAT(summary.latency_ms, testing::ElementsAre(10, 30));
  EXPECT_EQ(summary.refused, 2U);
  EXPECT_EQ(summary.not_sent, 1U);
  EXPECT_EQ(summary.unanswered, 1U);
  EXPECT_EQ(summary.deadline_misses, 2U) << "one late answer, and one that the server gave up";
  EXPECT_EQ(summary.errors.at(Code::kResourceExhausted), 2U);
  EXPECT_EQ(summary.errors.at(Code::kInternal), 1U);
  EXPECT_EQ(summarise(mixed(), 0, {}).deadline_misses, 1U);
  EXPECT_TRUE(summarise(mixed(), 1, {}).latency_ms.empty());
}

TEST(Report, JsonHasWhatTheTableLacks) {
  const Worker worker{"m", NearPeriodic{105}};
  const json report = to_json(worker, summarise(mixed(), 0, 20), 4);
  EXPECT_EQ(report["model"], "m");
  EXPECT_EQ(report["arrival"], "nearly periodic, 105 ms");
  EXPECT_EQ(report["sent"], 7);
  EXPECT_EQ(report["answered"], 2);
  EXPECT_EQ(report["refused"], 2);
  EXPECT_EQ(report["not_sent"], 1);
  EXPECT_EQ(report["unanswered"], 1);
  EXPECT_EQ(report["deadline_misses"], 2);
  EXPECT_EQ(report["errors"],
            (json{{"RESOURCE_EXHAUSTED", 2}, {"DEADLINE_EXCEEDED", 1}, {"INTERNAL", 1}}));
  EXPECT_EQ(report["throughput_per_s"], 0.5);
  EXPECT_EQ(report["latency_ms"]["mean"], 20);
  EXPECT_EQ(report["latency_ms"]["max"], 30);
  EXPECT_EQ(report["latency_ms"]["p50"], 20);
  EXPECT_EQ(report["send_lag_ms"]["max"], 2);
}

TEST(Report, ProgressNamesTheWholeTimeIfTheRunHasOne) {
  const LoadProgress progress{5.04, 7, 8, 9};
  EXPECT_EQ(progress_line(progress, {}), "5 s: 7 answered, 8 errors, 9 outstanding");
  EXPECT_EQ(progress_line(progress, 7.5), "5 of 7.5 s: 7 answered, 8 errors, 9 outstanding");
}

TEST(Report, ErrorLinesCountWhatHadNoGoodAnswer) {
  EXPECT_THAT(
      error_lines("m", summarise(mixed(), 0, {}), {{Code::kInternal, "it broke"}}),
      testing::ElementsAre("m: 2 requests: RESOURCE_EXHAUSTED", "m: 1 requests: DEADLINE_EXCEEDED",
                           "m: 1 requests: INTERNAL: it broke",
                           "m: 1 requests not sent, because --max-outstanding were outstanding",
                           "m: 1 requests had no answer at the end"));
  EXPECT_THAT(error_lines("m", summarise(hundred(), 0, {}), {}), testing::IsEmpty());
}

TEST(Report, CsvHasEveryRequest) {
  const std::vector<Worker> workers{{"m", NearPeriodic{105}}};
  EXPECT_EQ(csv(workers, mixed()),
            "due_ms,model,sent_ms,end_ms,latency_ms,result\n"
            "0.000,m,0.000,10.000,10.000,OK\n"
            "1.000,m,1.000,31.000,30.000,OK\n"
            "2.000,m,2.000,3.000,1.000,RESOURCE_EXHAUSTED\n"
            "3.000,m,3.000,4.000,1.000,RESOURCE_EXHAUSTED\n"
            "4.000,m,4.000,54.000,50.000,DEADLINE_EXCEEDED\n"
            "5.000,m,5.000,6.000,1.000,INTERNAL\n"
            "7.000,m,,,,not_sent\n"
            "8.000,m,10.000,,,unanswered\n");
}

TEST(Report, AnAnswerBeforeTheDueTimeHasNoLatency) {
  Record early = answered(10, 0);
  early.end_ns = 9 * kMs;
  EXPECT_THAT(summarise({early}, 0, {}).latency_ms, testing::ElementsAre(0));
}

Output floats(const std::vector<float>& values) {
  Output output;
  output.data.resize(values.size() * sizeof(float));
  std::memcpy(output.data.data(), values.data(), output.data.size());
  return output;
}

TEST(Report, ShowResultPrintsTheFirstOrTheLastValues) {
  const Output output = floats({1, 2.5, -3});
  EXPECT_EQ(show_result(7, output, 2), "request 7 numel 3 result[:2] : 1 2.5 \n");
  EXPECT_EQ(show_result(7, output, -2), "request 7 numel 3 result[-2:] : 2.5 -3 \n");
  EXPECT_EQ(show_result(7, output, 9), "request 7 numel 3 result[:9] : 1 2.5 -3 \n");
  EXPECT_EQ(show_result(7, output, -9), "request 7 numel 3 result[-9:] : 1 2.5 -3 \n");
  EXPECT_EQ(show_result(7, {engine::DataType::kInt16, std::string("\x02\x01", 2)}, 1),
            "request 7 numel 1 result[:1] : 258 \n");
}

}  // namespace
}  // namespace sluice::server::workload
