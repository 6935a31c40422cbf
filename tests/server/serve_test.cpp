// Whole runs of `sluice serve`: a model that answers at once, and recordings on the simulated GPU.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/fd.hpp"
#include "tests/server/api/raw_http.hpp"
#include "tests/support/look.hpp"
#include "tests/support/process.hpp"
#include "tests/support/session.hpp"

namespace sluice::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

using Args = std::vector<std::string>;

class Serve : public SessionTest {
 protected:
  Serve() : SessionTest("test-serve") {}

  [[nodiscard]] std::unique_ptr<Process> program(const Args& args) const {
    Args all{SLUICE_TEST_PROGRAM, "serve", "--session", session_};
    all.insert(all.end(), args.begin(), args.end());
    return std::make_unique<Process>(all, ProcessOptions{.folder = folder_.path()});
  }
  [[nodiscard]] base::Captured run(const Args& args) const { return program(args)->finish(); }

  /// Starts a server and waits until it is ready.
  void start(Args args) {
    args.insert(args.begin(), {"-p", "0", "--http", "0", "--json"});
    if (std::find(args.begin(), args.end(), "--drain-delay-s") == args.end()) {
      args.insert(args.end(), {"--drain-delay-s", "0"});
    }
    server_ = program(args);
    const std::string line = server_->read_line();
    ASSERT_FALSE(line.empty()) << server_->finish().err;
    const json said = json::parse(line);
    port_ = said["http_port"];
    if (said.contains("control")) control_port_ = said["control"]["http_port"];
  }
  /// `slow` takes about 0.6 s on the simulated GPU.
  void start_on_gpu() {
    static_cast<void>(
        folder_.write("models", "slow\n  path resnet152_b256\nquick\n  path mobilenet_v2_b1\n"));
    start({"--config", "models", "--gpu", "sim"});
  }

  /// Status and body; 0 where the server closes the connection.
  std::pair<int, std::string> call(const std::string& request) const {
    RawHttp http(port_);
    if (!http.send(request)) return {};
    const auto reply = http.reply();
    return reply ? std::pair{reply->status, reply->body} : std::pair{0, std::string()};
  }
  std::pair<int, std::string> get(const std::string& target) const {
    return call(http_request("GET", target));
  }
  [[nodiscard]] bool listens() const {
    try {
      const RawHttp http(port_);
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  }
  std::pair<int, std::string> infer(const std::string& model) const {
    return call(http_request(
        "POST", "/v2/models/" + model + "/infer",
        R"({"inputs":[{"name":"input0","datatype":"FP32","shape":[1,2],"data":[3,4]}]})"));
  }
  [[nodiscard]] std::uint64_t waiting(const std::string& model) const {
    const json status = json::parse(get("/v2/sluice/status").second);
    for (const json& row : status["models"]) {
      if (row["name"] == model) return row["waiting"];
    }
    return 0;
  }

  TempFolder folder_;
  std::unique_ptr<Process> server_;
  int port_ = 0;
  int control_port_ = 0;
};

TEST_F(Serve, AnswersRecordsAndCounts) {
  start({"--models", "dummy", "--records", "records.jsonl"});
  EXPECT_EQ(get("/v2/health/ready").first, 200);
  const auto [status, body] = infer("dummy");
  EXPECT_EQ(status, 200) << body;
  EXPECT_EQ(json::parse(body)["outputs"][0]["data"], json::array({3.0, 4.0}));
  EXPECT_THAT(
      get("/metrics").second,
      HasSubstr(
          R"(sluice_serve_requests_total{model="dummy",version="1",result="ok",reason=""} 1)"));
  server_->signal(SIGTERM);
  const base::Captured got = server_->finish();
  EXPECT_EQ(got.exit_code, 0);
  EXPECT_THAT(got.err, HasSubstr("SIGTERM"));
  const json record = json::parse(read_file(folder_.file("records.jsonl")));
  EXPECT_EQ(record["model_name"], "dummy");
  EXPECT_EQ(record["result"], "ok");
}

// Prevents: a server whose requests no best-effort program gives way to.
TEST_F(Serve, OnAGpuItIsACriticalClientAndLeavesNothing) {
  start_on_gpu();
  const auto [status, body] = infer("quick");
  EXPECT_EQ(status, 200) << body;
  EXPECT_GT(json::parse(body)["outputs"][0]["data"][0], 0);
  EXPECT_EQ(json::parse(get("/v2/sluice/status").second)["gated"], true);
  {
    const Look look(session_);
    ASSERT_EQ(look.board().used.load(), 1U);
    EXPECT_EQ(shm::SlotInfo::unpack(look.slot(0).info.load()).priority, 1);
    EXPECT_EQ(look.slot(0).pid.load(), static_cast<std::uint32_t>(server_->pid()));
    EXPECT_STREQ(look.slot(0).name.data(), "serve");
    // It ends just after the answer.
    EXPECT_TRUE(eventually([&] { return look.slot(0).job_times.recent().ended >= 1; }))
        << "the request was a job";
  }
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->finish().exit_code, 0);
  EXPECT_TRUE(eventually([&] { return !own_session_.has_board(); }));
}

/// One connection, kept open.
std::optional<RawHttp::Reply> ask(RawHttp& http, const std::string& request) {
  http.send(request);
  return http.reply();
}

// Prevents: an update of a service loses the requests that come before its clients know of it.
TEST_F(Serve, SigtermSaysNotReadyAndAnswersUntilTheDelayIsOver) {
  start({"--models", "dummy", "--drain-delay-s", "5"});
  RawHttp open(port_);
  ASSERT_EQ(ask(open, http_request("GET", "/v2/health/ready"))->status, 200);
  server_->signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return get("/v2/health/ready").first == 503; }));
  EXPECT_EQ(get("/v2/health/live").first, 200);
  EXPECT_EQ(infer("dummy").first, 200) << "on a new connection";
  const auto reply = ask(open, http_request("GET", "/v2/models/dummy/ready"));
  ASSERT_TRUE(reply) << "the open connection is gone";
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->headers.at("connection"), "close");
  const base::Captured got = server_->finish();
  EXPECT_EQ(got.exit_code, 0);
  EXPECT_THAT(got.err, HasSubstr("SIGTERM"));
}

TEST_F(Serve, SigtermAnswersWhatIsQueued) {
  start_on_gpu();
  std::atomic<std::uint64_t> answered = 0;
  const auto ask_slow = [&] {
    const int status = infer("slow").first;
    ++answered;
    return status;
  };
  std::vector<std::future<int>> asked;
  for (int i = 0; i < 6; ++i) asked.push_back(std::async(std::launch::async, ask_slow));
  RawHttp open(port_);
  ASSERT_EQ(ask(open, http_request("GET", "/v2/health/ready"))->status, 200);
  ASSERT_TRUE(eventually([&] {
    const std::uint64_t before = answered;
    const std::uint64_t queued = waiting("slow");
    return queued > 0 && before + 1 + queued == asked.size();  // one runs
  }));
  server_->signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return !listens(); }));
  const auto late =
      ask(open, http_request("POST", "/v2/models/quick/infer",
                             R"({"inputs":[{"name":"input0","datatype":"FP32","shape":[1,2],)"
                             R"("data":[3,4]}]})"));
  ASSERT_TRUE(late) << "a request on an open connection is lost";
  EXPECT_EQ(late->status, 200);
  for (auto& each : asked) EXPECT_EQ(each.get(), 200);
  EXPECT_EQ(server_->finish().exit_code, 0);
}

TEST_F(Serve, ASecondSignalEndsItAtOnce) {
  start({"--models", "dummy", "--drain-delay-s", "60"});
  server_->signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return get("/v2/health/ready").first == 503; }));
  server_->signal(SIGTERM);
  const base::Captured got = server_->finish();
  EXPECT_EQ(got.exit_code, 128 + SIGTERM);
  EXPECT_THAT(got.err, HasSubstr("a second signal"));
}

// Prevents: whoever reaches the port of inference ends the server, or changes it for all.
TEST_F(Serve, ControlCallsHaveAnAddressOfTheirOwn) {
  start({"--models", "dummy", "--control", "localhost", "--control-port", "0", "--control-http",
         "0"});
  const std::string unload = http_request("POST", "/v2/repository/models/dummy/unload");
  EXPECT_EQ(call(unload).first, 403);
  EXPECT_EQ(infer("dummy").first, 200);
  port_ = control_port_;
  EXPECT_EQ(call(unload).first, 200);
  EXPECT_EQ(infer("dummy").first, 503);
  EXPECT_EQ(call(http_request("POST", "/v2/repository/models/dummy/load")).first, 200);
  EXPECT_EQ(infer("dummy").first, 200);
}

TEST_F(Serve, WithoutControlTrainingIsRefusedAtTheStart) {
  const base::Captured got = run({"--models", "dummy", "--train-store", folder_.path()});
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_THAT(got.err, HasSubstr("--control"));
}

TEST_F(Serve, TheTimeLimitEndsIt) {
  start({"--models", "dummy", "--max-live-minute", "0.01"});
  const base::Captured got = server_->finish();
  EXPECT_EQ(got.exit_code, 0);
  EXPECT_THAT(got.err, HasSubstr("--max-live-minute"));
}

TEST_F(Serve, MistakesAreRefusedBeforeAnythingStarts) {
  const base::Captured none = run({});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err, "sluice serve: no models: give --models LIST or --config FILE\n");
  const base::Captured unknown = run({"--models", "resnet50_b"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'resnet50_b1'?"));
  static_cast<void>(folder_.write("config", "m\n  path dummy\n  batch 4\n"));
  const base::Captured key = run({"--config", "config"});
  EXPECT_EQ(key.exit_code, 2);
  EXPECT_THAT(key.err, StartsWith("sluice serve: config:3: unknown key 'batch'"));
  EXPECT_EQ(run({"--models", "dummy", "--scheduler", "LIFO"}).exit_code, 2);
  EXPECT_EQ(run({"--models", "dummy", "--config", "config"}).exit_code, 2);
  const base::Captured real = run({"--models", "resnet50_b1", "--gpu", "real"});
  EXPECT_EQ(real.exit_code, 1);
  EXPECT_THAT(real.err, HasSubstr("--gpu sim"));
}

TEST_F(Serve, APortInUseIsNamed) {
  const base::Fd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  ASSERT_EQ(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  for (const Args& ports : {Args{"-p", port, "--http", "0"}, Args{"-p", "0", "--http", port}}) {
    Args args{"--models", "dummy"};
    args.insert(args.end(), ports.begin(), ports.end());
    const base::Captured got = run(args);
    EXPECT_EQ(got.exit_code, 1);
    EXPECT_THAT(got.err, HasSubstr(port));
  }
}

TEST_F(Serve, AModelThatCannotBeLoadedEndsTheStart) {
  static_cast<void>(folder_.write("broken.json", "{}"));
  static_cast<void>(folder_.write("config", "m\n  path ./broken.json\n"));
  const base::Captured got = run({"--config", "config", "--gpu", "sim", "-p", "0", "--http", "0"});
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_THAT(got.err, HasSubstr("broken.json"));
  const base::Captured records =
      run({"--models", "dummy", "-p", "0", "--http", "0", "--records", "none/records"});
  EXPECT_EQ(records.exit_code, 1);
  EXPECT_THAT(records.err, HasSubstr("none/records"));
}

}  // namespace
}  // namespace sluice::test
