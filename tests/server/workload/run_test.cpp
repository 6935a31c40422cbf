// Whole runs: the program as a user calls it, against `sluice serve` with a model that answers at
// once, or against the server that answers as the tests need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "server/api/grpc_server.hpp"
#include "tests/server/api/fake_service.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

using Args = std::vector<std::string>;

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

class RunTest : public testing::Test {
 protected:
  RunTest() {
    add_job("job", "echo \"$@\" > " + folder_.file("args"));
    add_job("long", "exec sleep 60");
    const json ready = json::parse(server_.read_line());
    grpc_port_ = ready["grpc_port"];
    http_port_ = ready["http_port"];
  }
  ~RunTest() override { server_.signal(SIGTERM); }

  void add_job(const std::string& name, const std::string& script) const {
    const std::filesystem::path file = train_ / name;
    std::filesystem::create_directories(train_);
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  [[nodiscard]] Args command(const Args& args) const {
    Args all{SLUICE_TEST_PROGRAM, "hybrid_workload", "-p", std::to_string(grpc_port_)};
    all.insert(all.end(), args.begin(), args.end());
    return all;
  }
  [[nodiscard]] base::Captured run(const Args& args) const {
    return Process(command(args)).finish();
  }
  [[nodiscard]] json report(Args args) const {
    args.emplace_back("--json");
    const base::Captured got = run(args);
    EXPECT_EQ(got.exit_code, 0) << got.err;
    return json::parse(got.out);
  }

  const TempFolder folder_;
  const std::filesystem::path train_ = folder_.file("train");
  const bool made_ = std::filesystem::create_directories(train_);
  Process server_{
      {SLUICE_TEST_PROGRAM, "serve", "--models", "dummy[2]", "--train-store", train_.string(),
       "--allow-control", "--drain-delay-s", "0", "-p", "0", "--http", "0", "--json"},
      {.err = folder_.file("server.log")}};
  int grpc_port_ = 0;
  int http_port_ = 0;
};

TEST_F(RunTest, ClosedLoopPrintsThePublishedTable) {
  const base::Captured got = run({"--infer-model", "dummy", "-d", "0.5", "-c", "2", "-v"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(got.err, "");
  std::istringstream lines(got.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, MatchesRegex("=+"));
  std::getline(lines, line);
  EXPECT_THAT(line, MatchesRegex("\\| *InferWorker dummy \\(0\\.5 sec\\) *\\|"));
  std::getline(lines, line);
  EXPECT_THAT(line, MatchesRegex("\\| cnt: [0-9]+ +\\| ltc\\.avg: [0-9.]+ +\\| ltc\\.max: "
                                 "[0-9.]+ +\\| thpt: [0-9.]+r/s +\\| "));
  EXPECT_THAT(got.out, HasSubstr("[InferWorker TRACE dummy] request_time(ms), response_time(ms), "
                                 "latency(ms)\n"));
}

TEST_F(RunTest, PoissonKeepsItsRateWhateverTheAnswersTake) {
  const json all = report({"--infer-model", "dummy-p", "--poisson", "dummy=200", "-d", "1"});
  EXPECT_EQ(all["ended"], "time");
  const json& model = all["models"][0];
  EXPECT_NEAR(model["sent"].get<double>(), 200, 60);
  EXPECT_EQ(model["answered"], model["sent"]);
  EXPECT_EQ(model["not_sent"], 0);
}

TEST_F(RunTest, CountAndLambdaOfSeveralModels) {
  const std::string csv = folder_.file("requests.csv");
  const json all = report({"--infer-model", "dummy[2]", "--count", "60", "--lambda", "10",
                           "--lambda-of", "dummy-1=20", "--csv", csv});
  EXPECT_EQ(all["ended"], "done");
  const int first = all["models"][0]["answered"];
  const int second = all["models"][1]["answered"];
  EXPECT_EQ(first + second, 60);
  EXPECT_NEAR(first, 40, 5);
  const std::string text = read_file(csv);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 61);
  EXPECT_THAT(text, StartsWith("due_ms,model,sent_ms,end_ms,latency_ms,result\n"));

  // The file is one for --trace.
  const json again = report({"--trace", csv});
  EXPECT_EQ(again["models"][0]["answered"], first);
}

TEST_F(RunTest, TrainingJobsAreSentAndReported) {
  base::Captured got = run({"--no-infer", "--train-model", "job", "--num-epoch", "2"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_THAT(got.out, MatchesRegex("\\[TrainWorker job\\] cnt 1 \\| ltc\\.avg [0-9.]+sec \\| "
                                    "thpt [0-9.]+job/s\n"));
  EXPECT_THAT(read_file(folder_.file("args")), HasSubstr("--num-epoch 2 --batch-size 1 --mode "));

  got = run({"--infer-model", "dummy", "-d", "1", "-c", "1", "--train-model", "long"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_THAT(got.out, HasSubstr("[TrainWorker long] no train record\n")) << "it was stopped";
}

TEST_F(RunTest, HttpWorksToo) {
  Args args{SLUICE_TEST_PROGRAM, "hybrid_workload", "--http", "-p", std::to_string(http_port_)};
  const Args more{"--infer-model", "dummy", "--count", "50",     "-c", "2",
                  "--show-result", "1",     "--input", "random", "-l", folder_.file("report.txt")};
  args.insert(args.end(), more.begin(), more.end());
  const base::Captured got = Process(args).finish();
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_THAT(got.out, HasSubstr("numel 1 result[:1] : 0."));
  EXPECT_THAT(read_file(folder_.file("report.txt")), HasSubstr("| cnt: 50 "));
}

TEST_F(RunTest, AnnouncedRequestsAreAnswered) {
  const json all = report({"--infer-model", "dummy", "--count", "20", "--lambda", "10", "--arrival",
                           "poisson", "--announce-ms", "3", "--slo-ms", "5000"});
  EXPECT_EQ(all["models"][0]["answered"], 20);
  EXPECT_EQ(all["models"][0]["deadline_misses"], 0);
}

TEST_F(RunTest, MistakesAreOneLine) {
  base::Captured got = run({"--infer-model", "dumy"});
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_EQ(got.err,
            "sluice hybrid_workload: the server has no model 'dumy', did you mean 'dummy'? It has "
            "dummy, dummy-1\n");
  got = run({"--no-infer", "--train-model", "swin_b"});
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_THAT(got.err, HasSubstr("training swin_b: unknown training job 'swin_b'"));
  got = run({"--infer-model", "dummy", "-l", "/nowhere/report.txt"});
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_THAT(got.err, MatchesRegex("sluice hybrid_workload: [^\n]*/nowhere/report.txt[^\n]*\n"));
}

TEST_F(RunTest, ServerErrorsAreCountedAndNamed) {
  const base::Captured got =
      run({"--infer-model", "dummy", "--batch", "64", "-d", "0.3", "-c", "1", "--json"});
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_THAT(got.err, HasSubstr("requests: INVALID_ARGUMENT: found a batch of 64"));
  EXPECT_EQ(last_line(got.err), "sluice hybrid_workload: no request was answered");
  const json model = json::parse(got.out)["models"][0];
  EXPECT_EQ(model["errors"]["INVALID_ARGUMENT"], model["sent"]);
  EXPECT_EQ(model["answered"], 0);
}

TEST_F(RunTest, CtrlCEndsEarlyWithAReport) {
  Process client(command({"--infer-model", "dummy", "-d", "600", "-c", "1", "--show-result", "1"}));
  EXPECT_THAT(client.read_line(), StartsWith("request 0 "));
  client.signal(SIGINT);
  const base::Captured got = client.finish();
  EXPECT_EQ(got.exit_code, 130);
  EXPECT_THAT(got.out, HasSubstr("InferWorker dummy ("));
  EXPECT_THAT(got.out, testing::Not(HasSubstr("(600 sec)")));
}

TEST(Run, CtrlCDoesNotWaitForAnswers) {
  FakeService service;
  const server::api::GrpcServer server(service, {});
  Process client({SLUICE_TEST_PROGRAM, "hybrid_workload", "--infer-model", "stuck", "-d", "600",
                  "-p", std::to_string(server.port())});
  ASSERT_TRUE(eventually([&] { return service.unanswered() == 10; }, kProgramPatience));
  client.signal(SIGTERM);
  const base::Captured got = client.finish();
  EXPECT_EQ(got.exit_code, 143) << got.err;
  EXPECT_THAT(got.err, HasSubstr("stuck: 10 requests had no answer at the end"));
  EXPECT_EQ(got.out, "[InferWorker TRACE stuck] no inference record\n");
}

TEST(Run, AnEmptyServerAnswersOverBothProtocols) {
  const Args program{SLUICE_TEST_PROGRAM, "hybrid_workload"};
  auto of_program = [&](Args args) {
    args.insert(args.begin(), program.begin(), program.end());
    return args;
  };
  Process server(of_program({"--empty-server", "8"}));
  const json ports = json::parse(server.read_line());
  for (const char* protocol : {"grpc", "http"}) {
    Args args{"-p", ports[protocol + std::string("_port")].dump(), "--infer-model", "any"};
    if (protocol == std::string("http")) args.emplace_back("--http");
    // More than a socket takes at once.
    const Args more{"--dim", "500000", "--count", "20", "-c", "3", "--show-result", "2"};
    args.insert(args.end(), more.begin(), more.end());
    const base::Captured got = Process(of_program(args)).finish();
    EXPECT_EQ(got.exit_code, 0) << protocol << got.err;
    EXPECT_THAT(got.out, HasSubstr("numel 2 result[:2] : 0 0 "));
    EXPECT_THAT(got.out, HasSubstr("| cnt: 20 "));
  }
  server.signal(SIGTERM);
}

TEST(Run, NoServerIsOneLine) {
  const base::Captured got =
      Process({SLUICE_TEST_PROGRAM, "hybrid_workload", "--infer-model", "m", "-p", "1"}).finish();
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_EQ(got.err,
            "sluice hybrid_workload: no server at 127.0.0.1:1 (Connection refused); start one with "
            "`sluice serve`, or give --host and -p\n");
}

}  // namespace
}  // namespace sluice::test
