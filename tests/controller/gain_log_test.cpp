// What a session has gained, against the log of the simulated GPU: servers that are never idle, and
// servers that are idle between requests. Prevents: GPU time of best effort that is several times
// too high, because its samples have time slices of a server in them; time that was taken from a
// server which is never idle, called idle.
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "controller/ledger.hpp"
#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

struct Server {
  const char* name;
  std::vector<std::string> options;
  std::uint64_t kernel_us;
  bool idles;  ///< Between its requests.
};

void PrintTo(const Server& server, std::ostream* out) { *out << server.name; }

class GainAndLog : public EndToEndTest, public testing::WithParamInterface<Server> {
 protected:
  static constexpr std::uint64_t kScale = 10;
  static constexpr std::uint64_t kBestEffortUs = 100;

  void SetUp() override {
    if (on_real_gpu()) GTEST_SKIP() << "reads the log of the simulated GPU";
    EndToEndTest::SetUp();
    start_controller();
  }
  void TearDown() override {
    if (!on_real_gpu()) EndToEndTest::TearDown();
  }
  [[nodiscard]] static std::unique_ptr<Process> spin(int priority,
                                                     std::vector<std::string> options) {
    options.insert(options.begin(), SLUICE_TEST_SPIN);
    return std::make_unique<Process>(
        options, ProcessOptions{.environment = {"LD_PRELOAD=" SLUICE_TEST_INTERPOSER,
                                                "LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER,
                                                "SLUICE_PRIORITY=" + std::to_string(priority)}});
  }
  [[nodiscard]] static std::unique_ptr<Process> best_effort() {
    return spin(0, {"--kernels", "50", "--kernel-us", std::to_string(kBestEffortUs)});
  }
  [[nodiscard]] static std::unique_ptr<Process> server() {
    std::vector<std::string> options = GetParam().options;
    options.insert(options.end(), {"--kernel-us", std::to_string(GetParam().kernel_us)});
    return spin(1, options);
  }
  [[nodiscard]] bool works(const Process& process) const {
    return eventually([&] {
      const Look now = look();
      const int slot = slot_of(now, process.pid());
      return slot >= 0 && now.slot(slot).entries[0].launches() != 0;
    });
  }
  /// A server with steps gives best effort windows in them once it knows what they take.
  [[nodiscard]] bool runs_as_usual(const Process& server) const {
    return eventually([&] {
      const Look now = look();
      const shm::Slot& slot = now.slot(slot_of(now, server.pid()));
      const bool steps = slot.steps.state.load() != 0;
      return steps ? slot.steps.windows.load() >= 8 : slot.job_times.ended.load() >= 32;
    });
  }
  /// Looks for some seconds, as a controller does.
  controller::Ledger observe() {
    controller::Ledger ledger;
    for (int i = 0; i <= kLooks; ++i) {
      const shm::Snapshot snapshot = shm::take_snapshot(look().board(), base::monotonic_ns());
      if (i == 0) seen_.from_ns = snapshot.taken_ns;
      seen_.to_ns = snapshot.taken_ns;
      ledger.look(snapshot);
      if (i < kLooks) std::this_thread::sleep_for(500ms);
    }
    return ledger;
  }
  void end(std::unique_ptr<Process>& process) {
    process->signal(SIGTERM);
    process->finish();
    process.reset();
  }

  /// What the log has of a process: its GPU time, and the part of `seen_` in which it wanted the
  /// GPU.
  struct Truth {
    double gpu_ns = 0;
    double wanted_ns = 0;
  };
  [[nodiscard]] Truth truth_of(pid_t pid, std::uint64_t kernel_us) const {
    constexpr std::uint64_t kGapNs = 2'000'000;  // between kernels of one job, at most
    Truth truth;
    std::uint64_t end_ns = seen_.from_ns;
    for (const auto& [stream, kernels] : gpu_log().of(pid)) {
      for (const LoggedWork& kernel : kernels) {
        if (!seen_.holds(kernel.end_ns)) continue;
        truth.gpu_ns += static_cast<double>(kernel_us * 1000 * kScale);
        const bool goes_on = kernel.start_ns < end_ns + kGapNs;
        truth.wanted_ns +=
            static_cast<double>(kernel.end_ns - (goes_on ? end_ns : kernel.start_ns));
        end_ns = kernel.end_ns;
      }
    }
    return truth;
  }
  void compare(const controller::Ledger& ledger, pid_t server, pid_t below, bool must_be_known) {
    const shm::Gain gain = ledger.gain();
    const auto span_ns = static_cast<double>(seen_.to_ns - seen_.from_ns);
    const Truth above = truth_of(server, GetParam().kernel_us);
    const double best_effort_ns = truth_of(below, kBestEffortUs).gpu_ns;
    const double idle_ns = std::min(best_effort_ns, span_ns - above.wanted_ns);
    const bool known = gain.best_effort_ns != shm::Gain::kUnknown;
    std::printf("log: best effort %.3f, idle before %.3f; ledger: %.3f, %.3f of the time%s\n",
                best_effort_ns / span_ns, idle_ns / span_ns,
                known ? static_cast<double>(gain.best_effort_ns) / span_ns : 0,
                static_cast<double>(gain.idle_before_ns) / span_ns, known ? "" : " (not known)");
    EXPECT_GT(above.gpu_ns, 0.1 * span_ns);
    EXPECT_TRUE(known || !must_be_known);
    EXPECT_EQ(GetParam().idles, idle_ns > 0.2 * span_ns) << "the server is not what it should be";
    const double close_ns = 0.01 * span_ns;
    if (known) {
      EXPECT_NEAR(static_cast<double>(gain.best_effort_ns), best_effort_ns,
                  best_effort_ns / 4 + close_ns);
    }
    const double least_ns = GetParam().idles && known ? 0.75 * idle_ns - close_ns : 0;
    EXPECT_GE(static_cast<double>(gain.idle_before_ns), least_ns);
    EXPECT_LE(static_cast<double>(gain.idle_before_ns), 1.25 * idle_ns + close_ns);
  }

  static constexpr int kLooks = 8;
  Window seen_;
};

/// Best effort has never been alone: nobody knows how long its kernels are.
TEST_P(GainAndLog, AgreeOrItIsSaidThatItIsNotKnown) {
  auto above = server();
  ASSERT_TRUE(works(*above));
  auto below = best_effort();
  ASSERT_TRUE(eventually([&] { return slot_of(look(), below->pid()) >= 0; }));
  ASSERT_TRUE(runs_as_usual(*above));
  const controller::Ledger ledger = observe();
  const pid_t pids[]{above->pid(), below->pid()};
  end(above);  // first: best effort that is held ends late
  end(below);
  end_all();
  ASSERT_TRUE(end_gpu());
  compare(ledger, pids[0], pids[1], GetParam().idles);
}

TEST_P(GainAndLog, AgreeWhereBestEffortHasBeenAlone) {
  auto below = best_effort();
  ASSERT_TRUE(works(*below));
  std::this_thread::sleep_for(500ms);
  auto above = server();
  ASSERT_TRUE(works(*above));
  ASSERT_TRUE(runs_as_usual(*above));
  const controller::Ledger ledger = observe();
  const pid_t pids[]{above->pid(), below->pid()};
  end(above);  // first: best effort that is held ends late
  end(below);
  end_all();
  ASSERT_TRUE(end_gpu());
  compare(ledger, pids[0], pids[1], true);
}

INSTANTIATE_TEST_SUITE_P(
    Servers, GainAndLog,
    testing::Values(Server{"TwoStepsInFlight", {"--kernels", "50", "--in-flight", "2"}, 40, false},
                    Server{"JobsBackToBack", {"--kernels", "20"}, 100, false},
                    Server{"MarkedJobsBackToBack", {"--kernels", "20", "--mark"}, 100, false},
                    Server{"ARequestNowAndThen", {"--kernels", "20", "--period-ms", "6"}, 40, true},
                    Server{"RequestsAtRandom",
                           {"--kernels", "20", "--period-ms", "8", "--poisson"},
                           100,
                           true}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace sluice::test
