// What the watcher learns about the clients that hold its gate, without a controller.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <filesystem>
#include <thread>

#include "base/clock.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

class Holders : public Session {
 protected:
  void kill_controller() {
    controller_->signal(SIGKILL);
    controller_->wait();
  }
  /// A job of a client above holds this one.
  shm::Slot& become_held() {
    Critical& critical = outrank();
    critical.begin();
    EXPECT_TRUE(held());
    return board().slots[static_cast<std::size_t>(critical.slot())];
  }
  bool held() { return slot().gate.load() != 0; }
  /// Whether the client stays held for this time, while `act` is called often.
  template <class Act>
  bool stays_held(std::chrono::milliseconds time, Act act) {
    const auto end = std::chrono::steady_clock::now() + time;
    bool always = true;
    for (; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(5ms)) {
      act();
      always = always && held();
    }
    return always;
  }
};

// Prevents: a busy server loses its protection after max_hold, for the rest of its one job.
// Seen to fail when every hold was waived after max_hold.
TEST_F(Holders, AHolderThatWorksIsNotWaived) {
  attach("gate");
  board().max_hold_ns.store(1000 * kMs);
  shm::Slot& holder = become_held();
  EXPECT_TRUE(stays_held(1500ms, [&] { holder.entries[3][shm::Count::kGated].fetch_add(1); }));
  EXPECT_TRUE(stays_held(1500ms, [&] { holder.syncs.fetch_add(1); }));
  EXPECT_EQ(slot().max_hold_opened.load(), 0U);
  EXPECT_TRUE(eventually([&] { return !held(); })) << "it only beats now";
  EXPECT_EQ(slot().max_hold_opened.load(), 1U);
  holder.syncs.fetch_add(1);
  EXPECT_TRUE(eventually([&] { return held(); })) << "it makes progress again";
}

TEST_F(Holders, ASynchronisingCallThatReturnsIsProgress) {
  attach("gate");
  const std::uint64_t before = slot().syncs.load();
  ::cuStreamSynchronize(nullptr);
  ::cuCtxSynchronize();
  EXPECT_EQ(slot().syncs.load(), before + 2);
}

// Prevents: a stopped holder delays its targets for longer than 200 ms, or is not obeyed when it
// continues. Seen to fail without waive(), without honour(), and without the reset of progress_ns
// there.
TEST_F(Holders, AStoppedHolderIsObeyedAgain) {
  catch_errors();
  attach("gate");
  board().max_hold_ns.store(400 * kMs);
  shm::Slot& holder = become_held();
  kill_controller();
  critical_->stop_beating();
  const std::uint64_t stopped = base::monotonic_ns();
  EXPECT_TRUE(eventually([&] { return !held(); }));
  const std::uint64_t took = base::monotonic_ns() - stopped;
  EXPECT_GE(took, 120 * kMs) << "a busy machine delays a thread by that much";
  EXPECT_LT(took, 8000 * kMs);
  std::this_thread::sleep_for(600ms);  // longer than max_hold
  EXPECT_TRUE(eventually([&] {
    holder.watcher_beat_ns.store(base::monotonic_ns());
    return held();
  }));
  EXPECT_EQ(slot().max_hold_opened.load(), 0U);
  EXPECT_TRUE(eventually([&] { return !held(); })) << "stopped again";
  EXPECT_TRUE(eventually([&] { return !errors().empty(); }));
  const std::string said = errors();
  EXPECT_NE(said.find("which is stopped; running on until it continues"), std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "once a job: " << said;
}

// Prevents: another user's client ends this process, or controls its terminal, by the text on the
// board. Seen to fail when the text was read up to its NUL and printed as it was.
TEST_F(Holders, TheTextOfAHolderIsCutAndPrintable) {
  catch_errors();
  attach("gate");
  shm::Slot& holder = become_held();
  kill_controller();
  holder.command.fill('x');
  holder.command[3] = '\n';
  holder.command[4] = '\x1b';
  holder.requested_target.store(0x4141414141414141);  // follows the command
  critical_->stop_beating();
  EXPECT_TRUE(eventually([&] { return !held(); }));
  EXPECT_TRUE(eventually([&] { return !errors().empty(); }));
  const std::string said = errors();
  EXPECT_NE(said.find("(xxx??" + std::string(holder.command.size() - 5, 'x') + "), which is"),
            std::string::npos)
      << said;
}

// Prevents: a holder whose watcher gets no processor is taken for stopped although it launches.
// Seen to fail when only the beat counted.
TEST_F(Holders, AHolderThatLaunchesIsNotStopped) {
  attach("gate");
  shm::Slot& holder = become_held();
  critical_->stop_beating();
  EXPECT_TRUE(stays_held(500ms, [&] { holder.entries[0][shm::Count::kGated].fetch_add(1); }));
}

// Prevents: launches wait for an announced job after its process was killed.
// Seen to fail without one_died_lately() in tend_slack().
TEST_F(Holders, TheAnnouncementOfADeadClientIsVoid) {
  attach("gate");
  outrank();  // lives on, so that this client stays outranked
  choose("gate", 5);
  Process announcer({SLUICE_CLIENT_PROGRAM});
  ASSERT_EQ(announcer.read_line(), "attached");
  kill_controller();
  board().max_hold_ns.store(0);  // or that would end the wait
  slot().slack_until_ns.store(~std::uint64_t{0});
  slot().slack_ns.store(5);
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(slot().slack_ns.load(), 5U);
  announcer.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return slot().slack_ns.load() == shm::kUnlimitedSlack; }));
  announcer.wait();
}

// Prevents: without a controller, a client paces for a dead client. Seen to fail without
// settle_outranked() in Watcher::tick().
TEST_F(Holders, TheDeadOutrankNobody) {
  attach("gate");
  choose("gate", 5);
  Process above({SLUICE_CLIENT_PROGRAM});
  ASSERT_EQ(above.read_line(), "attached");
  EXPECT_EQ(slot().outranked.load(), 1U) << "before it can begin a job";
  kill_controller();
  above.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return slot().outranked.load() == 0; }));
  above.wait();
}

// Prevents: a client that a new controller refuses loses a descriptor at each try, or its gate.
// Seen to fail without close() in take_reply().
TEST_F(Holders, ARefusedReconnectCostsNothing) {
  attach("gate");
  const auto files = [] {
    using Folder = std::filesystem::directory_iterator;
    return std::distance(Folder("/proc/self/fd"), Folder());
  };
  slot().pid.store(1);  // not this process: the new controller refuses it
  kill_controller();
  controller_.reset();
  start_controller();
  const auto log = [this] { return sluice::test::read_file(own_session_.file("log")); };
  const auto refusals = [&] {
    std::size_t count = 0;
    const std::string all = log();
    const std::string text = "no longer belongs to this process";
    for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++count;
    return count;
  };
  ASSERT_TRUE(eventually([&] { return refusals() >= 1; })) << log();
  const auto before = files();
  ASSERT_TRUE(eventually([&] { return refusals() >= 4; })) << log();
  EXPECT_LE(files(), before + 1) << "one may be on its way";
  become_held();
}

}  // namespace
}  // namespace sluice::intercept::test
