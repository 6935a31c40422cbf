// The metrics page: it parses, and its numbers are the board's.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstring>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>

#include "controller/exposition.hpp"
#include "controller/metrics_address.hpp"
#include "controller/process.hpp"
#include "shm/gates.hpp"
#include "shm/policy.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/look.hpp"

namespace sluice::test {
namespace {

using controller::exposition;
using controller::parse_metrics_address;
using controller::printable;
using controller::Tally;

/// Samples by name and labels, as they stand in the text. Fails on a line that the format does not
/// know, on a sample outside its family, and on a sample that stands twice.
std::map<std::string, double> parse(const std::string& text) {
  static const std::regex kHead(R"(# (HELP|TYPE) ([a-z_]+) (.+))");
  static const std::regex kSample(
      R"rx(([a-z_]+)(\{([a-z]+="([^"\\\n]|\\[\\"n])*",?)*\})? ([0-9.e+-]+))rx");
  std::map<std::string, double> samples;
  std::set<std::string> families;
  std::string family;
  bool histogram = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kHead)) {
      if (match[1] == "HELP") {
        EXPECT_TRUE(families.insert(match[2]).second) << line;
      }
      if (match[1] == "TYPE") {
        const bool total = match[2].str().ends_with("_total");
        histogram = match[2].str().ends_with("_duration_seconds");
        EXPECT_EQ(match[3], total ? "counter" : histogram ? "histogram" : "gauge") << line;
      }
      family = match[2];
    } else if (std::regex_match(line, match, kSample)) {
      if (histogram) {
        EXPECT_TRUE(match[1] == family + "_bucket" || match[1] == family + "_sum" ||
                    match[1] == family + "_count")
            << line;
        EXPECT_EQ(match[1] == family + "_bucket", line.find("le=\"") != std::string::npos) << line;
      } else {
        EXPECT_EQ(match[1], family) << line;
      }
      EXPECT_TRUE(samples.emplace(line.substr(0, line.rfind(' ')), std::stod(match[5])).second)
          << line;
    } else {
      ADD_FAILURE() << "not the Prometheus format: " << line;
    }
  }
  return samples;
}

/// A board in the heap with one held client in slot 4.
std::unique_ptr<shm::Board> example_board() {
  auto board = std::make_unique<shm::Board>();
  board->used.store(shm::bit(4));
  board->heartbeat_ns.store(1'000'000'000);
  board->max_hold_ns.store(2'500'000'000);
  board->devices[2].used.store(1);
  board->devices[2].uuid.fill(0xab);
  shm::Slot& slot = board->slots[4];
  slot.info.store(shm::SlotInfo{shm::SlotState::kLive, 3, 2, 1}.pack());
  slot.pid.store(4711);
  slot.policy.store(shm::Policy{shm::PolicyKind::kDevice, shm::Spacing::launches(4)}.pack());
  slot.gate.store(shm::bit(1) | shm::bit(7));
  slot.closed_ns.store(1'500'000'000);
  slot.job.store(13);
  for (const std::uint64_t ns : {50'000U, 800'000U, 800'000U, 3'000'000U}) slot.job_times.add(ns);
  slot.job_times.add(30'000'000'000);
  std::strcpy(slot.name.data(), "train \"x\"");
  slot.max_hold_opened.store(2);
  slot.entries[0][shm::Count::kGated].store(30);
  slot.entries[0][shm::Count::kCaptured].store(10);
  slot.entries[0][shm::Count::kBypassFailedOpen].store(2);
  slot.entries[0][shm::Count::kWaited].store(8);
  slot.entries[0][shm::Count::kHeldNs].store(250'000'000);
  std::strcpy(slot.command.data(), "a \"b\" \\c\nd");
  return board;
}

TEST(Metrics, TheNumbersAreTheBoards) {
  const auto board = example_board();
  Tally tally;
  tally.deaths_repaired.store(5);
  const std::vector<shm::OutsideProcess> outside{{2, 0, "x", {}, false}, {2, 9, "y", 1024, true}};
  auto samples = parse(exposition(*board, tally, 1'040'000'000, outside));
  const std::string who = R"(slot="4",pid="4711",name="train \"x\"")";
  const std::string entry = "{" + who + R"(,entry="cuLaunchKernel")";
  EXPECT_EQ(samples[R"(sluice_clients{state="live"})"], 1);
  EXPECT_EQ(samples[R"(sluice_clients{state="dead"})"], 0);
  EXPECT_EQ(samples["sluice_slots"], 63);
  EXPECT_EQ(samples["sluice_client_info{" + who +
                    R"(,device="GPU-abababab-abab-abab-abab-abababababab",)"
                    R"(priority="3",policy="device:4",state="live"})"],
            1);
  EXPECT_EQ(samples["sluice_gate_closed{" + who + "}"], 1);
  EXPECT_EQ(samples["sluice_gate_holders{" + who + "}"], 2);
  EXPECT_EQ(samples["sluice_gate_closed_seconds_total{" + who + "}"], 1.5);
  EXPECT_EQ(samples["sluice_client_active{" + who + "}"], 1);
  EXPECT_EQ(samples["sluice_jobs_total{" + who + "}"], 5) << "not the slot's 6";
  const std::string jobs = "sluice_job_duration_seconds";
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="0.0001"})"], 1);
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="0.0005"})"], 1);
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="0.001"})"], 3) << "buckets add up";
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="10"})"], 4);
  EXPECT_EQ(samples[jobs + "_bucket{" + who + R"(,le="+Inf"})"], 5);
  EXPECT_EQ(samples[jobs + "_count{" + who + "}"], 5);
  EXPECT_DOUBLE_EQ(samples[jobs + "_sum{" + who + "}"], 30.00465);
  EXPECT_EQ(samples["sluice_max_hold_openings_total{" + who + "}"], 2);
  EXPECT_EQ(samples["sluice_launches_total" + entry + "}"], 42);
  EXPECT_EQ(samples["sluice_launches_gated_total" + entry + "}"], 30);
  EXPECT_EQ(samples["sluice_launches_captured_total" + entry + "}"], 10);
  EXPECT_EQ(samples["sluice_launches_waited_total" + entry + "}"], 8);
  EXPECT_EQ(samples["sluice_launch_held_seconds_total" + entry + "}"], 0.25);
  EXPECT_EQ(samples["sluice_launches_bypassed_total" + entry + R"(,reason="failed_open"})"], 2);
  EXPECT_EQ(samples["sluice_launches_bypassed_total" + entry + R"(,reason="unattached"})"], 0);
  EXPECT_EQ(samples["sluice_deaths_repaired_total"], 5);
  EXPECT_EQ(samples["sluice_max_hold_seconds"], 2.5);
  EXPECT_NEAR(samples["sluice_heartbeat_age_seconds"], 0.04, 1e-9);
  const std::string device = R"({device="GPU-abababab-abab-abab-abab-abababababab"})";
  EXPECT_EQ(samples["sluice_outside_processes" + device], 2);
  EXPECT_EQ(samples["sluice_outside_memory_bytes" + device], 1024);
}

// Prevents: secrets in arguments, read by any user of the machine: a loopback port asks nobody.
TEST(Metrics, CommandLinesAreNotOnThePage) {
  const auto board = example_board();
  std::strcpy(board->slots[4].command.data(), "serve --token=hunter2");
  const std::string page =
      exposition(*board, Tally(), 1'040'000'000, {{2, 9, "other --token=hunter2", {}, false}});
  EXPECT_EQ(page.find("hunter2"), std::string::npos) << page;
  EXPECT_EQ(page.find("token"), std::string::npos) << page;
}

// Prevents: a command line ends the log line, drives the terminal, or makes the page invalid UTF-8.
TEST(Metrics, TextOfOthersIsMadePrintable) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f", 99), "a?b?[31m?");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f", 99), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable("gr\xc3\xbc", 3), "gr") << "not half a character";
  EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80\xc0\x80", 99), "\?\?(\?\?\?\?\?");
}

// Prevents: metrics, and with them command lines, on the network.
TEST(Metrics, LoopbackAddressesOnly) {
  EXPECT_EQ(parse_metrics_address("127.0.0.1:9464")->port, 9464);
  EXPECT_EQ(parse_metrics_address("127.1.2.3:0")->host, "127.1.2.3");
  EXPECT_EQ(parse_metrics_address("localhost:80")->host, "127.0.0.1");
  EXPECT_EQ(parse_metrics_address("[::1]:80")->host, "::1");
  for (const char* wrong : {"", ":9464", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                            "127.0.0.1:-1", "127.0.0.1:9464x", "0.0.0.0:9464", "[::]:9464",
                            "10.0.0.1:9464", "example.com:80", "127.0.0.1.example.com:80"}) {
    EXPECT_FALSE(parse_metrics_address(wrong)) << wrong;
  }
}

class MetricsServer : public ControllerTest {
 protected:
  void SetUp() override {
    controller_ = start_controller({"--metrics", "127.0.0.1:0"});
    const std::string said = log();
    const std::string mark = "metrics=http://127.0.0.1:";
    port_ = std::stoi(said.substr(said.find(mark) + mark.size()));
  }
  void TearDown() override {
    controller_->signal(SIGTERM);
    EXPECT_EQ(controller_->wait(), 0);
    ControllerTest::TearDown();
  }

  base::Fd connect_http() const {
    base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  std::string fetch(const std::string& head) const {
    const base::Fd fd = connect_http();
    const std::string request = head + " HTTP/1.1\r\nHost: x\r\n\r\n";
    send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    char bytes[4096];
    for (ssize_t size = 0; (size = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;) {
      answer.append(bytes, static_cast<std::size_t>(size));
    }
    return answer;
  }

  std::unique_ptr<Process> controller_;
  int port_ = 0;
};

TEST_F(MetricsServer, ServesThePageAndNothingElse) {
  const FakeClient client(session_, 5);
  const std::string answer = fetch("GET /metrics");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("text/plain; version=0.0.4"), std::string::npos);
  auto samples = parse(answer.substr(answer.find("\r\n\r\n") + 4));
  EXPECT_EQ(samples[R"(sluice_clients{state="live"})"], 1);
  EXPECT_EQ(samples["sluice_attaches_total"], 1);
  EXPECT_TRUE(fetch("GET /").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(fetch("GET /metricsx").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(fetch("DELETE /metrics").starts_with("HTTP/1.1 405 "));
  EXPECT_TRUE(fetch("GET /metrics?x=y").starts_with("HTTP/1.1 200 "));
}

// Prevents: one client of the page that says nothing keeps all others from it, or the loop from
// its heartbeat.
TEST_F(MetricsServer, SilentAndBrokenPeersStopNobody) {
  std::vector<base::Fd> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(connect_http());
  send(silent[0].get(), "\x16\x03garbage", 9, MSG_NOSIGNAL);
  EXPECT_TRUE(fetch("GET /metrics").starts_with("HTTP/1.1 200 "));
  const Look look(session_);
  const std::uint64_t beat = look.board().heartbeat_ns.load();
  EXPECT_TRUE(eventually(
      [&] { return look.board().heartbeat_ns.load() > beat + 3 * shm::kHeartbeatPeriodNs; }));
}

// Prevents: a port that is taken leaves half a controller behind.
TEST_F(MetricsServer, ATakenPortIsAnErrorThatLeavesNothing) {
  const std::string other = session_ + "b";
  Process second({SLUICE_CONTROLLER_PROGRAM, "--session", other, "--metrics",
                  "127.0.0.1:" + std::to_string(port_)},
                 {.err = log_path()});
  EXPECT_EQ(second.wait(), 1);
  EXPECT_NE(log().find("cannot serve metrics on 127.0.0.1 port"), std::string::npos) << log();
  EXPECT_THROW(shm::BoardMapping::inspect(other), shm::NoBoard);
}

}  // namespace
}  // namespace sluice::test
