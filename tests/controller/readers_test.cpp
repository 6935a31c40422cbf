// What the node service does on the board for clients that can only read it, without processes.
// Those of controller/node/ have some.
#include "controller/readers.hpp"

#include "base/clock.hpp"
#include "shm/report.hpp"
#include "tests/support/board_test.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

/// A reader in slot 0, below a client in slot 1.
class ReadersOfABoard : public BoardTest {
 protected:
  ReadersOfABoard() {
    add_client(0, 0, "reader").reader.store(1);
    add_client(1, 10, "writer");
    board_->max_hold_ns.store(10 * kSecond);
  }
  /// As the client above does when it announces a job far away.
  void limit_slack() {
    slot(0).slack_until_ns.store(base::monotonic_ns() + 600 * kSecond);
    slot(0).slack_ns.store(5);
  }
  void open_slack() { slot(0).slack_ns.store(shm::kUnlimitedSlack); }
  [[nodiscard]] bool has_slack() { return slot(0).slack_ns.load() == shm::kUnlimitedSlack; }

  controller::Tally tally_;
  controller::Clients clients_{*board_, tally_};
};

// Prevents: a reader that shows a policy which no program can have, and tools that fail at it.
TEST_F(ReadersOfABoard, APolicyIsTakenOnlyIfThereIsOne) {
  shm::Report report;
  shm::fill_report(report, slot(0));
  report.slot = 0;
  const auto shown_after = [&](const shm::Policy& policy) {
    report.policy = policy.pack();
    controller::take_report(clients_, report);
    return slot(0).policy.load();
  };
  const shm::Policy sync{shm::PolicyKind::kSync, shm::Spacing::launches(4)};
  EXPECT_EQ(shown_after(sync), sync.pack());
  EXPECT_EQ(slot(0).waiters.load(), 1U) << "its threads may wait on the host";
  const shm::Policy no_spacing{shm::PolicyKind::kDevice, shm::Spacing::launches(0)};
  const auto no_kind = static_cast<shm::PolicyKind>(200);
  EXPECT_EQ(shown_after(no_spacing), sync.pack());
  EXPECT_EQ(shown_after({no_kind, shm::Spacing::launches(1)}), sync.pack());
  EXPECT_EQ(slot(0).waiters.load(), 1U);
}

// Prevents: the wait for a job lets launches through too early, because an earlier wait counts.
TEST_F(ReadersOfABoard, EachLimitedSlackHasItsOwnMaxHold) {
  limit_slack();
  const std::uint64_t now = base::monotonic_ns();
  controller::tend_readers(clients_, now - 11 * kSecond);
  controller::tend_readers(clients_, now - 2 * kSecond);
  EXPECT_FALSE(has_slack());
  open_slack();
  controller::tend_readers(clients_, now - 2 * kSecond);
  limit_slack();
  controller::tend_readers(clients_, base::monotonic_ns());
  EXPECT_FALSE(has_slack()) << "it has just been limited";
  // It is let through for some milliseconds, in which a busy machine may stop this thread.
  EXPECT_TRUE(eventually([&] {
    clients_.tenant(0).slack_since_ns = base::monotonic_ns() - 10 * kSecond;
    controller::tend_readers(clients_, base::monotonic_ns());
    return has_slack();
  }));
}

}  // namespace
}  // namespace sluice::test
