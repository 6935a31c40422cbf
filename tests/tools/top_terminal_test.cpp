// `sluice top` as a user runs it: on a terminal, into a pipe, and while the session comes and goes.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "shm/mapping.hpp"
#include "shm/policy.hpp"
#include "shm/view.hpp"
#include "tests/support/terminal.hpp"
#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

#ifdef SLUICE_TEST_CURSES
constexpr bool kLive = true;
#else
constexpr bool kLive = false;
#endif

/// Leaving the screen that programs draw on, for the one with the user's own lines.
constexpr const char* kRestored = "\x1b[?1049l";

/// The test makes the board itself, in the place of a controller.
class TopTerminal : public CommandTest {
 protected:
  void make_board() {
    auto made = shm::BoardMapping::adopt_or_create(session_);
    mapping_.emplace(std::move(made.mapping));
    shm::Board& board = mapping_->board();
    board.controller_pid.store(7);
    board.heartbeat_ns.store(base::monotonic_ns());
    shm::Slot& slot = board.slots[0];
    slot.pid.store(4711);
    slot.policy.store(shm::kDefaultPolicy.pack());
    slot.requested_policy.store(shm::kDefaultPolicy.pack());
    slot.info.store(shm::SlotInfo{shm::SlotState::kLive, 3, 0, 1}.pack());
    board.used.store(1);
  }
  void remove_board() {
    EXPECT_TRUE(mapping_->remove_if_unused());
    mapping_.reset();
  }
  void TearDown() override {
    if (mapping_) remove_board();
    CommandTest::TearDown();
  }
  void need_curses() {
    if (!kLive) GTEST_SKIP() << "built without curses";
  }
  static std::vector<std::string> top() { return sluice_command({"top", "--interval", "0.1"}); }

  std::optional<shm::BoardMapping> mapping_;
};

// Prevents: the user's shell left without echo, without its lines or its cursor.
TEST_F(TopTerminal, HoweverItEndsTheTerminalIsRestored) {
  need_curses();
  if (IsSkipped()) return;
  make_board();
  for (const char* end : {"q", "Q", "\x03", "TERM", "HUP"}) {
    Terminal terminal(top());
    ASSERT_TRUE(terminal.shows("LNCH/S")) << terminal.written();
    EXPECT_FALSE(terminal.is_as_before()) << "the test sees nothing";
    const std::string how(end);
    if (how == "TERM") {
      kill(terminal.pid(), SIGTERM);
    } else if (how == "HUP") {
      kill(terminal.pid(), SIGHUP);
    } else {
      terminal.type(how);
    }
    EXPECT_EQ(terminal.finish(), 0) << how;
    EXPECT_TRUE(terminal.is_as_before()) << how;
    EXPECT_NE(terminal.written().find(kRestored), std::string::npos) << how;
  }
}

TEST_F(TopTerminal, ShowsMoreInALargerTerminal) {
  need_curses();
  if (IsSkipped()) return;
  make_board();
  Terminal terminal(top());
  ASSERT_TRUE(terminal.shows("LNCH/S"));
  terminal.resize(140, 30);
  EXPECT_TRUE(terminal.shows("JOBS/S"));
  terminal.resize(30, 5);
  terminal.resize(80, 24);
  terminal.type("xyz");  // keys that mean nothing
  terminal.type("q");
  EXPECT_EQ(terminal.finish(), 0);
}

TEST_F(TopTerminal, ChangesThePolicyOfAClient) {
  need_curses();
  if (IsSkipped()) return;
  Process program(sluice_command(
      {"exec", "--gpu", "sim", "--priority", "0", "--name", "my job", "--", SLUICE_TEST_CLIENT}));
  ASSERT_EQ(program.read_line(), "ok");
  program.write_line("launch 1000");
  ASSERT_EQ(program.read_line(), "ok");
  Terminal terminal(top());
  ASSERT_TRUE(terminal.shows("my job")) << terminal.written();
  terminal.type("p");
  ASSERT_TRUE(terminal.shows("policy of my job")) << terminal.written();
  terminal.type("gate\r");
  EXPECT_TRUE(terminal.shows("policy device:200us -> gate")) << terminal.written();
  terminal.type("?");
  EXPECT_TRUE(terminal.shows("select a client"));
  terminal.type("x\x1bOB");
  EXPECT_TRUE(terminal.shows("my job")) << "the key of an arrow is no Escape";
  terminal.type("q");
  EXPECT_EQ(terminal.finish(), 0);
  EXPECT_NE(sluice({"status", "--json"}).out.find("\"requested_policy\": \"gate\""),
            std::string::npos);
}

TEST_F(TopTerminal, SurvivesTheEndOfItsSessionAndFindsTheNext) {
  need_curses();
  if (IsSkipped()) return;
  make_board();
  Terminal terminal(top());
  ASSERT_TRUE(terminal.shows("4711"));
  remove_board();
  ASSERT_TRUE(terminal.shows("waiting")) << terminal.written();
  make_board();
  ASSERT_TRUE(terminal.shows("4711")) << terminal.written();
  terminal.type("q");
  EXPECT_EQ(terminal.finish(), 0);
}

// Prevents: an end with an error where the terminal cannot be drawn on.
TEST_F(TopTerminal, OnATerminalOfUnknownKindItPrintsLineByLine) {
  make_board();
  setenv("TERM", "no-such-terminal", 1);
  Terminal terminal(top());
  unsetenv("TERM");
  EXPECT_TRUE(terminal.shows("4711"));
  EXPECT_TRUE(terminal.shows("4711")) << "only one picture";
  terminal.type("\x03");
  EXPECT_EQ(terminal.finish(), 0);
  EXPECT_TRUE(terminal.is_as_before());
}

TEST_F(TopTerminal, IntoAPipeItPrintsOnePicture) {
  make_board();
  const base::Captured text = sluice({"top"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("4711   3 device:200us"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  const base::Captured json = sluice({"top", "--json", "--interval", "0.2"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const auto read = nlohmann::json::parse(json.out);
  EXPECT_EQ(read["clients"][0]["pid"], 4711);
  EXPECT_GE(read["span_ns"], 200'000'000U);
}

TEST_F(TopTerminal, WithoutASessionItSaysSoInOneLine) {
  for (const bool json : {false, true}) {
    const base::Captured result = json ? sluice({"top", "--json"}) : sluice({"top"});
    EXPECT_EQ(result.exit_code, sluice({"status"}).exit_code);
    EXPECT_EQ(lines_in(result.err), 1) << result.err;
    EXPECT_NE(result.err.find("sluice top: no session " + session_ + " is running"),
              std::string::npos)
        << result.err;
  }
  Terminal terminal(top());
  EXPECT_TRUE(terminal.shows("is running"));
  EXPECT_EQ(terminal.finish(), 1);
  for (const char* interval : {"0", "-1", "soon", "1e9"}) {
    const base::Captured result = sluice({"top", "--interval", interval});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(lines_in(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(" is not a number from 0.02 to 3600"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::test
