// Programs with a limit of device memory, as a user gives it, with the real controller, the real
// interposer and the simulated GPU.
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
constexpr const char* kRefused = "error 2";

class MemoryLimit : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    setenv("SLUICE_SIM_MEMORY_MIB", "4096", 1);
  }
  void TearDown() override {
    unsetenv("SLUICE_SIM_MEMORY_MIB");
    unsetenv("SLUICE_SIM_DEVICES");
    program_.reset();
    CommandTest::TearDown();
  }
  void start(std::vector<std::string> options = {"--memory", "1GiB"},
             const std::string& priority = "0") {
    options.insert(options.begin(), {"exec", "--gpu", "sim", "--priority", priority});
    options.insert(options.end(), {"--", SLUICE_TEST_MEMORY_CLIENT});
    program_ = std::make_unique<Process>(sluice_command(options));
  }
  std::string say(const std::string& line) {
    program_->write_line(line);
    return program_->read_line();
  }
  std::string alloc(const std::string& way, std::uint64_t bytes) {
    return say("alloc " + way + " " + std::to_string(bytes));
  }
  static std::string told(std::uint64_t free, std::uint64_t total) {
    return std::to_string(free) + " " + std::to_string(total) + " " + std::to_string(total);
  }
  nlohmann::json memory() {
    const base::Captured shown = sluice({"status", "--json"});
    const auto status = nlohmann::json::parse(shown.out);
    for (const auto& client : status["clients"]) {
      if (client["pid"] == program_->pid()) return client["memory"];
    }
    return {};
  }
  std::unique_ptr<Process> program_;
};

// The point of it all: the program sees a GPU of this size.
TEST_F(MemoryLimit, AProgramSeesItsLimitAndGetsNoMore) {
  start();
  EXPECT_EQ(say("info"), told(kGiB, kGiB));
  EXPECT_EQ(alloc("plain", 768 * kMiB), "ok");
  EXPECT_EQ(say("info"), told(256 * kMiB, kGiB));
  EXPECT_EQ(alloc("plain", 256 * kMiB + 1), kRefused);
  EXPECT_EQ(say("launch"), "ok") << "an ordinary error, which leaves the context usable";
  EXPECT_EQ(alloc("plain", 256 * kMiB), "ok");
  EXPECT_EQ(say("info"), told(0, kGiB));
  EXPECT_EQ(alloc("plain", 1), kRefused);
  EXPECT_EQ(say("free"), "ok");
  EXPECT_EQ(alloc("plain", 256 * kMiB), "ok") << "a free makes room again";
  EXPECT_EQ(memory()["limit_bytes"], kGiB);
  EXPECT_EQ(memory()["held_bytes"], kGiB);
  EXPECT_EQ(memory()["refused_allocations"], 2);
  const base::Captured shown = sluice({"status"});
  EXPECT_NE(shown.out.find("memory 1.0 GiB, limit 1.0 GiB, 2 allocations refused"),
            std::string::npos)
      << shown.out;
}

// Prevents: a wrong unit goes unnoticed, and the program has no limit.
TEST_F(MemoryLimit, MoreThanTheGpuHasIsRefused) {
  const auto exec = [](const char* limit) {
    return sluice(
        {"exec", "--gpu", "sim", "--priority", "0", "--memory", limit, "--", "echo", "ran"});
  };
  const base::Captured refused = exec("5GiB");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_NE(refused.err.find("'5GiB' is more than the GPU has: a limit is 1GiB to 4.0GiB here"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(exec("4GiB").out, "ran\n");
  EXPECT_EQ(exec("none").out, "ran\n");
}

// The simulated GPU has these ways; tests/intercept/memory_limit_test.cpp has all of them.
TEST_F(MemoryLimit, HoldsForEveryWayToAllocate) {
  start({"--memory", "1GiB"}, "7");
  for (const char* const way : {"plain", "async", "physical"}) {
    EXPECT_EQ(alloc(way, 640 * kMiB), "ok") << way;
    EXPECT_EQ(say("info"), told(384 * kMiB, kGiB)) << way;
    for (const char* const other : {"plain", "async", "physical"}) {
      EXPECT_EQ(alloc(other, 512 * kMiB), kRefused) << way << ", then " << other;
    }
    EXPECT_EQ(say("free"), "ok") << way;
  }
  EXPECT_EQ(say("info"), told(kGiB, kGiB));
}

TEST_F(MemoryLimit, ThreadsTogetherDoNotExceedIt) {
  start();
  EXPECT_EQ(alloc("plain", 512 * kMiB), "ok");
  EXPECT_EQ(say("race 8 " + std::to_string(128 * kMiB)), "4");
  EXPECT_EQ(memory()["held_bytes"], kGiB);
}

TEST_F(MemoryLimit, AResetMakesRoom) {
  start();
  EXPECT_EQ(alloc("plain", kGiB), "ok");
  EXPECT_EQ(say("reset"), "ok");
  EXPECT_EQ(say("info"), told(kGiB, kGiB));
  EXPECT_EQ(alloc("async", kGiB), "ok");
}

TEST_F(MemoryLimit, EachDeviceHasItsOwn) {
  setenv("SLUICE_SIM_DEVICES", "2", 1);
  start();
  EXPECT_EQ(alloc("plain", kGiB), "ok");
  EXPECT_EQ(say("device 1"), "ok");
  EXPECT_EQ(say("info"), told(kGiB, kGiB));
  EXPECT_EQ(alloc("plain", kGiB), "ok");
  EXPECT_EQ(alloc("plain", 1), kRefused);
}

// A child that CUDA works in, because its parent has not used it.
TEST_F(MemoryLimit, AForkedChildHasTheSame) {
  start();
  EXPECT_EQ(say("fork"), "ok");
  EXPECT_EQ(say("info"), told(kGiB, kGiB));
  EXPECT_EQ(alloc("plain", kGiB + 1), kRefused);
  EXPECT_EQ(alloc("plain", kGiB), "ok");
}

TEST_F(MemoryLimit, SetChangesItAndTakesNothingAway) {
  start({"--memory", "3GiB"});
  EXPECT_EQ(alloc("plain", 2 * kGiB), "ok");
  const std::string pid = std::to_string(program_->pid());
  const base::Captured less = sluice({"set", pid, "--memory", "1GiB", "--json"});
  ASSERT_EQ(less.exit_code, 0) << less.err;
  const auto told_less = nlohmann::json::parse(less.out)["clients"][0];
  EXPECT_EQ(told_less["memory_limit_bytes"], kGiB);
  EXPECT_EQ(told_less["before"]["memory_limit_bytes"], 3 * kGiB);
  EXPECT_EQ(say("info"), told(0, kGiB));
  EXPECT_EQ(memory()["held_bytes"], 2 * kGiB);
  EXPECT_EQ(alloc("plain", 1), kRefused);
  EXPECT_EQ(say("free"), "ok");
  EXPECT_EQ(alloc("plain", kGiB), "ok");
  EXPECT_EQ(sluice({"set", pid, "--priority", "1"}).exit_code, 0);
  EXPECT_EQ(memory()["limit_bytes"], kGiB) << "another change keeps it";
  const base::Captured more = sluice({"set", pid, "--memory", "none"});
  EXPECT_NE(more.out.find(", memory 1GiB -> none"), std::string::npos) << more.out << more.err;
  EXPECT_EQ(say("info"), told(3 * kGiB, 4 * kGiB));
  EXPECT_TRUE(memory()["limit_bytes"].is_null());
}

// Prevents: a limit that means another size than the user wrote, or a program that runs without
// the limit for which its user asked.
TEST_F(MemoryLimit, BadLimitsStartNothing) {
  const auto refused = [&](const std::string& text, const std::string& why) {
    for (const char* const command : {"exec", "set"}) {
      std::vector<std::string> args{command, "--memory=" + text, "--priority", "0"};
      args.emplace_back(std::string(command) == "exec" ? "true" : "1");
      const base::Captured result = sluice(args);
      EXPECT_EQ(result.exit_code, 2) << text;
      EXPECT_EQ(lines_in(result.err), 1) << result.err;
      EXPECT_NE(result.err.find("--memory: '" + text + "' " + why), std::string::npos)
          << result.err;
      EXPECT_NE(result.err.find("1GiB to 16TiB"), std::string::npos) << result.err;
    }
  };
  refused("20", "has no unit: write 20GiB; a limit is");
  refused("0", "has no unit: write none;");
  refused("0GiB", "is too little: a limit is");
  refused("1023MiB", "is too little: a limit is 1GiB to 16TiB (the context of a program");
  refused("17TiB", "is above every GPU");
  refused("20gb", "is not one of 20GiB");
  EXPECT_EQ(controller_pid(), 0);
}

// Of a container that was made for another GPU, for example.
TEST_F(MemoryLimit, ThatOfTheEnvironmentHasNoEffectAboveTheGpu) {
  program_ = std::make_unique<Process>(
      sluice_command({"exec", "--gpu", "sim", "--priority", "0", "--", "env", "SLUICE_MEMORY=5GiB",
                      SLUICE_TEST_MEMORY_CLIENT}));
  EXPECT_EQ(say("info"), told(4 * kGiB, 4 * kGiB));
  EXPECT_EQ(alloc("plain", 4 * kGiB), "ok");
  EXPECT_NE(program_->finish().err.find(
                "GPU 0 has 4096 MiB: the limit of 5120 MiB has no effect there\n"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::test
