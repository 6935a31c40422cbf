// `sluice set`: whom a word names, and what happens to a program that runs.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/command_line.hpp"
#include "shm/mapping.hpp"
#include "shm/target.hpp"
#include "tests/support/board_test.hpp"
#include "tests/support/eventually.hpp"
#include "tests/tools/command.hpp"
#include "tools/set/choice.hpp"
#include "tools/set/request.hpp"

namespace sluice::tools {
namespace {

using test::kNow;

class Choice : public test::BoardTest {
 protected:
  Choice() {
    add_client(0, 0, "python train.py");
    add_client(3, 100, "python serve.py");
    add_client(62, 1, "python serve.py --port 8080");
  }
  [[nodiscard]] std::vector<shm::ClientSnapshot> choose(const std::string& text,
                                                        bool all = false) const {
    return choose_clients(shm::take_snapshot(*board_, kNow), text, all);
  }
  /// The slot of the only one, or -1.
  [[nodiscard]] int slot_of(const std::string& text) const {
    const auto chosen = choose(text);
    return chosen.size() == 1 ? chosen.front().slot : -1;
  }
  void expect_refused(const std::string& text, const std::string& said) const {
    try {
      static_cast<void>(choose(text));
      ADD_FAILURE() << "'" << text << "' is taken";
    } catch (const base::UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  }
};

TEST_F(Choice, ByPidSlotOrPartOfTheCommand) {
  EXPECT_EQ(slot_of("103"), 3);
  EXPECT_EQ(slot_of("pid:100"), 0);
  EXPECT_EQ(slot_of("slot:0"), 0);
  EXPECT_EQ(slot_of("train"), 0);
  EXPECT_EQ(slot_of("port 8080"), 62);
}

// Prevents: the wrong client changed, where a word could mean two.
TEST_F(Choice, NeverGuesses) {
  expect_refused("python",
                 "'python' is ambiguous, name one by pid:N or slot:N, or change all of them with "
                 "--all:\n"
                 "  serve.py (pid 103, slot 3): python serve.py\n"
                 "  serve.py (pid 162, slot 62): python serve.py --port 8080\n"
                 "  train.py (pid 100, slot 0): python train.py");
  expect_refused("serve", "name one by pid:N or slot:N");
  // In a container pids are small: one that has just gone is no slot, nor python3.
  expect_refused("3", "no client '3'");
  expect_refused("8080", "no client '8080'");
  slot(62).pid.store(3);
  EXPECT_EQ(slot_of("3"), 62);
  EXPECT_EQ(slot_of("pid:3"), 62);
  EXPECT_EQ(slot_of("slot:3"), 3);
  expect_refused("nobody",
                 "no client 'nobody' in this session; there are:\n"
                 "  serve.py (pid 103, slot 3): python serve.py\n"
                 "  serve.py (pid 3, slot 62): python serve.py --port 8080\n"
                 "  train.py (pid 100, slot 0): python train.py");
  expect_refused("pid:3x", "no client 'pid:3x'");
  expect_refused("99999999999999999999", "no client");
  expect_refused("", "no client");
}

// Prevents: a client that nobody can name by its name, because that is part of another's.
TEST_F(Choice, AWholeWordBeforeAPartOfOne) {
  add_client(4, 1, "worker --name critical exp.json");
  add_client(5, 2, "worker --name most_critical exp.json");
  add_client(6, 0, "python /home/me/tune.py --fast");
  add_client(7, 0, "python finetune.py --fast");
  EXPECT_EQ(slot_of("critical"), 4);
  EXPECT_EQ(slot_of("name critical"), 4);
  EXPECT_EQ(slot_of("most_critical"), 5);
  EXPECT_EQ(slot_of("tune.py"), 6);
  EXPECT_EQ(slot_of("finetune"), 7);
  expect_refused("tune.p", "'tune.p' is ambiguous");
  // The name that a user gave comes before every command.
  set_name(slot(5), "exp.json");
  EXPECT_EQ(slot_of("exp.json"), 5);
  set_name(slot(5), "other");
  expect_refused("exp.json", "'exp.json' is ambiguous");
}

// Prevents: a job of three workers that its user cannot change, because "worker" is ambiguous.
TEST_F(Choice, ANameALabelAndAllNameSeveralProcesses) {
  EXPECT_EQ(choose("serve.py").size(), 2U) << "workers of one name are one job";
  EXPECT_EQ(choose("python", true).size(), 3U);
  EXPECT_EQ(choose("slot:3", true).size(), 1U);
  expect_refused("label:job=7", "no client 'label:job=7' in this session; there are:");
  for (const int labelled : {0, 62}) {
    std::strcpy(slot(labelled).label.data(), "team=vision,job=7");
  }
  EXPECT_EQ(choose("label:job=7").size(), 2U);
  EXPECT_EQ(choose("label:team=vision").size(), 2U);
  expect_refused("label:job", "no client 'label:job'");
  expect_refused("label:job=77", "no client 'label:job=77'");
  set_state(62, shm::SlotState::kDead, 100);
  EXPECT_EQ(slot_of("label:job=7"), 0) << "one that ended is not changed";
}

TEST_F(Choice, TakesAllDevicesOfAProcessAndNoneThatEnded) {
  slot(3).pid.store(162);
  EXPECT_EQ(choose("162").size(), 2U);
  EXPECT_EQ(choose("serve.py").size(), 2U) << "one process";
  EXPECT_EQ(slot_of("slot:62"), 62);
  set_state(62, shm::SlotState::kLeaving, 1);
  EXPECT_EQ(slot_of("162"), 3);
  set_state(3, shm::SlotState::kDead, 100);
  expect_refused("162", "client '162' has ended:\n  serve.py (pid 162, slot 3): python serve.py");
  board_->used.store(0);
  expect_refused("train", "it has none");
}

/// The test makes the board itself, in the place of a controller.
class Request : public test::CommandTest {
 protected:
  Request() : mapping_(shm::BoardMapping::adopt_or_create(session_).mapping) {
    slot().pid.store(4711);
    slot().policy.store(shm::kDefaultPolicy.pack());
    slot().requested_policy.store(shm::kDefaultPolicy.pack());
    occupy(1);
    mapping_.board().used.store(1);
  }
  void TearDown() override {
    EXPECT_TRUE(mapping_.remove_if_unused());
    CommandTest::TearDown();
  }
  shm::Slot& slot() { return mapping_.board().slots[0]; }
  void occupy(std::uint32_t generation) {
    slot().info.store(shm::SlotInfo{shm::SlotState::kLive, 3, 0, generation}.pack());
  }
  [[nodiscard]] std::optional<shm::ClientSnapshot> wait(const shm::Snapshot& before) const {
    return wait_until_taken(session_, before.board_id, before.clients.at(0), 20);
  }
  shm::BoardMapping mapping_;
};

// Prevents: a change reported as made because the next process in the slot has such a policy.
TEST_F(Request, AnotherClientOfTheSlotIsNotTheOneAsked) {
  const shm::Snapshot before = shm::take_snapshot(mapping_.board(), kNow);
  EXPECT_EQ(wait(before)->pid, 4711U);
  slot().requested_policy.store(shm::Policy{}.pack());
  EXPECT_FALSE(wait(before)) << "it has not taken the policy up";
  slot().requested_policy.store(shm::kDefaultPolicy.pack());
  slot().requested_target.store(shm::parse_target("p99=2x")->pack());
  EXPECT_FALSE(wait(before)) << "it has not taken the target up";
  slot().requested_target.store(0);
  occupy(2);
  EXPECT_THROW(static_cast<void>(wait(before)), base::UsageError);
}

using test::lines_in;
using test::Process;
using test::sluice;

class Set : public test::CommandTest {
 protected:
  /// A program under the interposer, on the simulated GPU, that has launched.
  static std::unique_ptr<Process> start(const std::string& policy, const std::string& priority) {
    auto program = std::make_unique<Process>(
        test::sluice_command({"exec", "--gpu", "sim", "--priority", priority, "--policy", policy,
                              "--", SLUICE_TEST_CLIENT}));
    EXPECT_EQ(program->read_line(), "ok");
    launch(*program);
    return program;
  }
  static void launch(Process& program) {
    for (const char* order : {"launch 1000", "sync"}) {
      program.write_line(order);
      EXPECT_EQ(program.read_line(), "ok") << order;
    }
  }
  static nlohmann::json status_of(const Process& program) {
    const auto status = nlohmann::json::parse(sluice({"status", "--json"}).out);
    for (const auto& client : status["clients"]) {
      if (client["pid"] == program.pid()) return client;
    }
    return {};
  }
  static void expect_error(std::vector<std::string> args, int exit_code, const std::string& said) {
    args.insert(args.begin(), "set");
    const base::Captured result = sluice(args);
    EXPECT_EQ(result.exit_code, exit_code) << testing::PrintToString(args);
    EXPECT_EQ(lines_in(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
};

// Prevents: a target that the program never sees, or that a change of another value takes away.
TEST_F(Set, ChangesTheTargetOfAProgramThatRuns) {
  setenv("SLUICE_TARGET", "p99=2x", 1);
  setenv("SLUICE_LABEL", "team=vision", 1);
  setenv("SLURM_JOB_ID", "4711", 1);
  const auto program = start("device:4", "5");
  for (const char* name : {"SLUICE_TARGET", "SLUICE_LABEL", "SLURM_JOB_ID"}) unsetenv(name);
  const std::string pid = std::to_string(program->pid());
  EXPECT_EQ(status_of(*program)["labels"]["team"], "vision");
  EXPECT_EQ(status_of(*program)["labels"]["job"], "4711");
  EXPECT_TRUE(test::eventually([&] {
    const auto target = status_of(*program)["target"];
    return target.is_object() && target["target"] == "p99=2x";
  })) << "the watcher has not put it in force";
  const base::Captured result = sluice({"set", pid, "--target", "p99=50ms"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find(", policy device:4, target p99=2x -> p99=50ms\n"), std::string::npos)
      << result.out;
  EXPECT_EQ(sluice({"set", pid, "--policy", "gate"}).exit_code, 0);
  EXPECT_EQ(status_of(*program)["target"]["target"], "p99=50ms");
  const base::Captured none = sluice({"set", pid, "--target", "none", "--json"});
  const auto told = nlohmann::json::parse(none.out)["clients"][0];
  EXPECT_EQ(told["target"], "none");
  EXPECT_EQ(told["before"]["target"], "p99=50ms");
  EXPECT_TRUE(status_of(*program)["target"].is_null());
  expect_error({pid, "--target", "soon"}, 2, "'soon' is not a target");
  const base::Captured sliced = sluice({"set", pid, "--slice", "1ms", "--json"});
  const auto slices = nlohmann::json::parse(sliced.out)["clients"][0];
  EXPECT_EQ(slices["slice"], "1ms");
  EXPECT_EQ(slices["before"]["slice"], "auto");
  EXPECT_EQ(status_of(*program)["slice"]["requested"], "1ms");
  const base::Captured weighed = sluice({"set", pid, "--weight", "3"});
  EXPECT_NE(weighed.out.find(", slice 1ms, weight none -> 3\n"), std::string::npos) << weighed.out;
  EXPECT_EQ(status_of(*program)["weight"], 3);
  const base::Captured given = sluice({"set", pid, "--give", "2.5%"});
  EXPECT_NE(given.out.find(", weight 3, give 5% -> 2.5%\n"), std::string::npos) << given.out;
  EXPECT_EQ(status_of(*program)["give"]["most"], 0.025);
  EXPECT_TRUE(status_of(*program)["turn"].is_null()) << "it is alone";
}

TEST_F(Set, ChangesAProgramThatRuns) {
  const auto program = start("device:4", "0");
  const auto critical = start("device:4", "9");
  const std::string pid = std::to_string(program->pid());
  const base::Captured result = sluice({"set", pid, "--policy", "event:3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("priority 0, policy device:4 -> event:3"), std::string::npos)
      << result.out;
  EXPECT_EQ(status_of(*program)["policy"], "event:3");
  EXPECT_EQ(status_of(*program)["requested_policy"], "event:3");
  EXPECT_NE(sluice({"status"}).out.find("event:3"), std::string::npos);
  launch(*program);

  const base::Captured both =
      sluice({"set", "pid:" + pid, "--policy=none", "--priority=12", "--json"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  const auto told = nlohmann::json::parse(both.out);
  EXPECT_EQ(told["clients"][0]["priority"], 12);
  EXPECT_EQ(told["clients"][0]["policy"], "none");
  EXPECT_EQ(told["clients"][0]["before"]["priority"], 0);
  EXPECT_EQ(told["clients"][0]["before"]["policy"], "event:3");
  EXPECT_EQ(status_of(*program)["priority"], 12);
  EXPECT_EQ(status_of(*critical)["priority"], 9);
  launch(*program);
  EXPECT_EQ(told["clients"][0]["name"], "sluice_gpu_client");
  EXPECT_EQ(both.err, "sluice set: pid " + pid +
                          " runs ungated: jobs of higher priority take turns with it\n");
  const base::Captured many = sluice({"set", pid, "--policy", "device:200"});
  EXPECT_EQ(many.err,
            "sluice set: device:200 waits once in 200 launches; did you mean device:200us "
            "(microseconds)?\n");
  // The same again is no error.
  EXPECT_EQ(sluice({"set", pid, "--priority", "12"}).exit_code, 0);
}

// Prevents: a program that has stopped, or ends meanwhile, and keeps the others of its name from
// their change.
TEST_F(Set, ChangesAllProgramsOfANameAndSaysHowMany) {
  const std::vector<std::unique_ptr<Process>> workers = [] {
    std::vector<std::unique_ptr<Process>> started;
    for (int i = 0; i < 3; ++i) started.push_back(start("device:4", "0"));
    return started;
  }();
  const base::Captured all = sluice({"set", "sluice_gpu_client", "--priority", "3"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(lines_in(all.out), 4) << all.out;
  EXPECT_TRUE(all.out.ends_with("changed 3 of 3 programs\n")) << all.out;
  for (const auto& worker : workers) EXPECT_EQ(status_of(*worker)["priority"], 3);
  kill(workers[1]->pid(), SIGSTOP);
  const base::Captured most = sluice({"set", "sluice_gpu_client", "--policy", "gate"});
  kill(workers[1]->pid(), SIGCONT);
  EXPECT_EQ(most.exit_code, 1);
  EXPECT_EQ(lines_in(most.err), 1) << most.err;
  EXPECT_NE(most.err.find("is it stopped?"), std::string::npos) << most.err;
  EXPECT_TRUE(most.out.ends_with("changed 2 of 3 programs\n")) << most.out;
  for (const int other : {0, 2}) {
    EXPECT_EQ(status_of(*workers[static_cast<std::size_t>(other)])["policy"], "gate");
  }
}

// A stopped program is told so; it takes the change up when it goes on.
TEST_F(Set, AStoppedProgramTakesItUpLater) {
  const auto program = start("device:4", "0");
  kill(program->pid(), SIGSTOP);
  expect_error({std::to_string(program->pid()), "--policy", "gate"}, 1, "is it stopped?");
  EXPECT_EQ(status_of(*program)["policy"], "device:4");
  EXPECT_NE(sluice({"status"}).out.find("asked for policy gate, which it has not taken up yet"),
            std::string::npos);
  kill(program->pid(), SIGCONT);
  const base::Captured result = sluice({"set", std::to_string(program->pid()), "--priority", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(status_of(*program)["policy"], "gate");
}

TEST_F(Set, EachWrongLineSaysWhatIsWrong) {
  expect_error({"x", "--policy", "gate"}, 1, "no session " + session_ + " is running");
  const auto program = start("device:4", "0");
  const std::string pid = std::to_string(program->pid());
  expect_error({}, 2, "CLIENT");
  expect_error({pid}, 2,
               "nothing to change: name --policy, --priority, --target, --slice, --memory, "
               "--weight or --give");
  for (const char* slice : {"0", "3s", "19us", "101ms", "5", "us", "99999999999us", "-50us"}) {
    expect_error({pid, "--slice", slice}, 2,
                 "is not a time slice: auto, off, or a time from 20us to 100ms");
  }
  for (const char* weight : {"0", "1001", "-1", "1.5", "many"}) {
    expect_error({pid, "--weight=" + std::string(weight)}, 2,
                 "is not a weight: none, or a whole number from 1 to 1000");
  }
  for (const char* give : {"5", "51%", "-1%", "2.55%", "none"}) {
    expect_error({pid, "--give=" + std::string(give)}, 2,
                 "is not a share of its time: 0, or a percentage from 0.1% to 50% such as 5%");
  }
  expect_error({pid, "--policy", "devise:4"}, 2, "did you mean 'device:4'?");
  for (const char* priority : {"256", "-1", "high", "1.5"}) {
    expect_error({pid, "--priority=" + std::string(priority)}, 2,
                 "--priority: '" + std::string(priority) + "' is not a whole number from 0 to 255");
  }
  const base::Captured none = sluice({"set", "nobody", "--priority", "1"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(lines_in(none.err), 2) << "a client a line:\n" << none.err;
  EXPECT_NE(none.err.find("there are:\n  sluice_gpu_client (pid " + pid), std::string::npos)
      << none.err;
  expect_error({pid, "gate", "--priority", "1"}, 2, "gate");
  expect_error({pid, "--priority", "1", "--session", "a b"}, 2, "cannot name a session");
}

// Prevents: a change reported as made that nobody has heard of.
TEST_F(Set, WithoutAControllerItChangesNothing) {
  const auto program = start("device:4", "0");
  const pid_t controller = controller_pid();
  ASSERT_GT(controller, 0);
  kill(controller, SIGTERM);
  while (controller_pid() == controller) usleep(1000);
  expect_error({std::to_string(program->pid()), "--policy", "gate"}, 1, "has no controller");
  EXPECT_EQ(status_of(*program)["requested_policy"], "device:4");
  // Another controller, which removes the board when the program is killed.
  EXPECT_EQ(sluice({"exec", "--priority", "0", "--gpu", "sim", "--", "true"}).exit_code, 0);
}

}  // namespace
}  // namespace sluice::tools
