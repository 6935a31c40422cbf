// Clients that can only read the board: those of users who may ask for priority 0 only.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>

#include "base/clock.hpp"
#include "base/node_service.hpp"
#include "shm/mapping.hpp"
#include "shm/memory.hpp"
#include "shm/messages.hpp"
#include "shm/snapshot.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

constexpr const char* kAnnaMayAskFor10 = R"({"rules": [{"user": 12345, "max_priority": 10}]})";

class Readers : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped()) return;
    start(kAnnaMayAskFor10);
    low_ = client_of(kBert, 0);
    high_ = client_of(kAnna, 10);
    ASSERT_TRUE(low_->attached() && high_->attached()) << low_->greeting() << high_->greeting();
    look_.emplace("node");
  }
  [[nodiscard]] bool is_held() const { return look_->gate(low_->slot()) != 0; }
  [[nodiscard]] const shm::Slot& low_slot() const { return look_->slot(low_->slot()); }
  [[nodiscard]] std::uint32_t outranked() const { return low_slot().outranked.load(); }
  [[nodiscard]] bool has_slack() const {
    return low_slot().slack_ns.load() == shm::kUnlimitedSlack;
  }
  /// As an announcer does, for much longer than a test runs.
  void limit_slack() const {
    constexpr std::uint64_t kLongNs = 600'000'000'000;
    const auto mapping = shm::BoardMapping::attach("node");
    shm::Slot& slot = mapping.board().slots[static_cast<std::size_t>(low_->slot())];
    slot.slack_until_ns.store(base::monotonic_ns() + kLongNs);
    slot.slack_ns.store(5);
  }

  std::unique_ptr<FakeClient> low_;
  std::unique_ptr<FakeClient> high_;
  std::optional<Look> look_;
};

// Prevents: who may ask for no priority can hold others nevertheless; or who may, cannot.
TEST_F(Readers, OnlyThoseWhoMayHoldOthersMayWrite) {
  EXPECT_EQ(low_slot().reader.load(), 1U);
  EXPECT_EQ(look_->slot(high_->slot()).reader.load(), 0U);
  const auto maps_for_writing = [] {
    try {
      return shm::BoardMapping::attach("node").writable() ? 0 : 1;
    } catch (const shm::BoardError&) {
      return 2;
    }
  };
  EXPECT_EQ(run_as(kAnna, maps_for_writing), 0);
  EXPECT_EQ(run_as(kBert, maps_for_writing), 2) << "or the first write ends the program";
}

// Prevents: a reader that leaves keeps the gate that it had.
TEST_F(Readers, TheServiceOpensAndClosesItsGate) {
  high_->order("begin");
  EXPECT_TRUE(is_held());
  low_->order("leave");
  EXPECT_FALSE(is_held());
}

// Prevents: a holder that hangs holds readers for longer than max_hold, or a waived job opens their
// gates for the next ones too.
TEST_F(Readers, AWaivedJobDoesNotHold) {
  high_->order("begin");
  low_->order("waive " + std::to_string(high_->slot()));
  EXPECT_TRUE(eventually([&] { return !is_held(); }));
  high_->order("end");
  high_->order("begin");
  EXPECT_TRUE(is_held());
}

// Prevents: a reader that runs ungated at no risk is paced as if somebody could hold it.
TEST_F(Readers, TheServiceSetsWhetherItIsOutranked) {
  EXPECT_EQ(outranked(), shm::kOutranked);
  high_->order("leave");
  EXPECT_TRUE(eventually([&] { return outranked() == 0; }));
}

// Prevents: the slots of readers that were killed, or that exec'd another program, are never free.
TEST_F(Readers, ItsSlotIsFreeWhenItIsGone) {
  const auto other = client_of(kBert, 0);
  ASSERT_TRUE(other->attached());
  other->order("exec");
  low_->process().signal(SIGKILL);
  for (const FakeClient* client : {low_.get(), other.get()}) {
    EXPECT_TRUE(eventually([&] { return look_->state(client->slot()) == shm::SlotState::kFree; },
                           kProgramPatience));
  }
  EXPECT_TRUE(client_of(kBert, 0)->attached());
}

// Prevents: a reader that closes its files by itself loses its slot, and another client gets the
// gate for which its work waits.
TEST_F(Readers, AConnectionIsRenewed) {
  kill_service();
  start(kAnnaMayAskFor10);
  EXPECT_TRUE(logs("client attached again: slot " + std::to_string(low_->slot())));
  high_->order("begin");
  EXPECT_TRUE(is_held());
  low_->order("waive " + std::to_string(high_->slot()));
  EXPECT_TRUE(eventually([&] { return !is_held(); })) << "the new service hears its reports";
}

// Prevents: with the service gone too, a dead holder holds a reader for good.
TEST_F(Readers, WithoutAServiceOthersOpenTheGateForADeadHolder) {
  const auto third = client_of(kAnna, 5);
  ASSERT_TRUE(third->attached());
  high_->order("begin");
  kill_service();
  high_->process().signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_held(); }));
}

// Prevents: a slack that nobody tends any more delays a reader's launches for good.
TEST_F(Readers, ASlackThatIsOverIsOpened) {
  const auto mapping = shm::BoardMapping::attach("node");
  shm::Slot& slot = mapping.board().slots[static_cast<std::size_t>(low_->slot())];
  const auto limit = [&](std::uint64_t for_ns) {
    slot.slack_until_ns.store(base::monotonic_ns() + for_ns);
    slot.slack_ns.store(5);
  };
  const auto is_open = [&] { return slot.slack_ns.load() == shm::kUnlimitedSlack; };
  limit(0);
  EXPECT_TRUE(eventually(is_open));
  constexpr std::uint64_t kLongNs = 600'000'000'000;
  limit(kLongNs);
  const std::uint64_t beats = look_->board().heartbeat_ns.load();
  EXPECT_TRUE(eventually(
      [&] { return look_->board().heartbeat_ns.load() > beats + 3 * shm::kHeartbeatPeriodNs; }));
  EXPECT_FALSE(is_open()) << "it is valid";
  high_->process().signal(SIGKILL);
  EXPECT_TRUE(eventually(is_open)) << "the one who announced is dead";
}

// Prevents: the exit() of a reader waits for good for a slack that an announcer wrote too late.
TEST_F(Readers, ASlackThatComesTooLateIsOpened) {
  low_->order("leave");
  limit_slack();
  EXPECT_TRUE(eventually([&] { return has_slack(); }));
}

// Prevents: the slack of an announcer that has died limits a reader for as long as another client
// above lives, because that client saw the death before the service.
TEST_F(Readers, ADeathThatAnotherClientSawFirstOpensTheSlack) {
  const auto third = client_of(kAnna, 5);
  ASSERT_TRUE(third->attached());
  limit_slack();
  service().stop();
  high_->process().signal(SIGKILL);
  high_->process().wait();
  EXPECT_TRUE(eventually([&] { return look_->state(high_->slot()) == shm::SlotState::kDead; }));
  service().signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return has_slack(); }));
  EXPECT_TRUE(eventually([&] { return look_->state(high_->slot()) == shm::SlotState::kFree; }));
}

// Prevents: the same, for a death while there is no service.
TEST_F(Readers, ADeathWithoutAServiceOpensTheSlackWhenItIsBack) {
  const auto third = client_of(kAnna, 5);
  ASSERT_TRUE(third->attached());
  limit_slack();
  kill_service();
  high_->process().signal(SIGKILL);
  high_->process().wait();
  start(kAnnaMayAskFor10);
  EXPECT_TRUE(eventually([&] { return has_slack(); }));
}

// Prevents: launches of a reader are refused after it has obeyed; its broker waits for good.
TEST_F(Readers, ItObeysABroker) {
  const auto mapping = shm::BoardMapping::attach("node");
  shm::Board& board = mapping.board();
  const shm::SlotOf broker{high_->slot(), high_->generation()};
  const shm::SlotOf client{low_->slot(), low_->generation()};
  const std::uint64_t order = shm::give_order(board, broker, client, shm::MemoryOrder::kDrop);
  shm::begin_drain(board, broker, client);
  high_->order("begin");
  EXPECT_FALSE(is_held()) << "drained";
  EXPECT_NE(outranked() & shm::kOrdered, 0U);
  low_->order("obey " + std::to_string(shm::Order::unpack(order).epoch));
  EXPECT_TRUE(eventually([&] { return (outranked() & shm::kOrdered) == 0 && is_held(); }));
  EXPECT_EQ(shm::pending_order(board, client).kind, shm::MemoryOrder::kNone);
}

/// Tries every way to change what the descriptor and the mapping show. 0: none works.
int try_to_write(int board) {
  constexpr std::size_t kSize = sizeof(shm::Board);
  const std::array<char, 4096> ones{1};
  void* const pages = mmap(nullptr, kSize, PROT_READ, MAP_SHARED, board, 0);
  if (pages == MAP_FAILED) return 10;
  if (pwrite(board, ones.data(), ones.size(), 0) >= 0) return 11;
  if (mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, board, 0) != MAP_FAILED) return 12;
  if (mprotect(pages, kSize, PROT_READ | PROT_WRITE) == 0) return 13;
  if (madvise(pages, kSize, MADV_REMOVE) == 0) return 14;
  if (fallocate(board, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) return 15;
  if (fchmod(board, 0666) == 0) return 16;
  const std::string path = "/proc/self/fd/" + std::to_string(board);
  if (open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0) return 17;
  const base::Fd memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(pages));
  if (memory && pwrite(memory.get(), ones.data(), ones.size(), at) > 0) return 18;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // AddressSanitizer makes an exit code of the signal
    static_cast<volatile char*>(pages)[0] = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 0 : 19;
}

/// A program of a user who may only read. Attaches, writes wherever it can, and reports anything
/// about everybody.
int scribble() {
  const auto connect = [] { return shm::connect_controller(base::node_socket().c_str()); };
  const base::Fd connection(connect());
  const base::Fd second(connect());
  shm::Reply given;
  shm::Reply other;
  if (shm::ask(connection.get(), good_request(), given, 10'000) != 0) return 1;
  if (given.status != shm::ReplyStatus::kOk) return 2;
  const base::Fd board(shm::ask_for_board(second.get(), shm::RequestKind::kBoard, other, 10'000));
  if (!board) return 3;
  if (const int written = try_to_write(board.get()); written != 0) return written;
  constexpr int kReports = 20'000;
  std::mt19937_64 random(20261124);
  for (int i = 0; i < kReports; ++i) {
    shm::Report report;
    for (std::uint64_t& word : report.words) word = random();
    for (std::uint64_t& job : report.waived) job = random() % 4;
    for (char& c : report.unhooked_name) c = static_cast<char>(random());
    report.slot = i % 2 == 0 ? given.slot : static_cast<std::int32_t>(random() % 70) - 3;
    report.generation = i % 2 == 0 ? given.generation : static_cast<std::uint32_t>(random() % 2);
    // Not the end of its slot, or the rest would be ignored.
    report.state = static_cast<shm::SlotState>(i % 3 == 0 ? 200 : 2 + i % 2);
    report.refuses = static_cast<std::uint32_t>(random());
    report.job = random() >> (random() % 64);
    report.policy = random();
    report.done = random();
    const bool sent = send(connection.get(), &report, sizeof(report), MSG_NOSIGNAL) > 0;
    if (!sent && errno == EAGAIN) usleep(100);
    if (!sent && errno != EAGAIN) return 4;
  }
  return 0;
}

// Prevents: a best-effort user holds, opens, ends or misrepresents anybody else's program, or ends
// the service.
TEST_F(Readers, AHostileOneHarmsNobodyElse) {
  const auto third = client_of(kCarl, 0);
  ASSERT_TRUE(third->attached());
  const std::array victims{low_.get(), high_.get(), third.get()};
  const auto is_right = [&](std::uint64_t low_gate) {
    for (const FakeClient* client : victims) {
      const shm::Slot& slot = look_->slot(client->slot());
      const std::uint64_t gate = client == high_.get() ? 0 : low_gate;
      if (slot.gate.load() != gate ||
          slot.info.load() !=
              shm::SlotInfo{shm::SlotState::kLive,
                            static_cast<std::uint8_t>(client == high_.get() ? 10 : 0), 0,
                            client->generation()}
                  .pack() ||
          slot.waived[static_cast<std::size_t>(high_->slot())].load() != 0 ||
          slot.gpu_ns.load() != 0 || slot.memory.held.load() != 0) {
        return false;
      }
    }
    return true;
  };
  const pid_t hostile = fork();
  if (hostile == 0) {
    if (setgid(kBert) != 0 || setuid(kBert) != 0) _exit(99);
    _exit(scribble());
  }
  int status = 0;
  int rounds = 0;
  while (waitpid(hostile, &status, WNOHANG) == 0) {
    EXPECT_TRUE(is_right(0)) << rounds;
    high_->order("begin");
    EXPECT_TRUE(is_right(shm::bit(high_->slot()))) << rounds;
    high_->order("end");
    EXPECT_FALSE(shm::take_snapshot(look_->board(), base::monotonic_ns()).clients.empty());
    if (HasFailure()) kill(hostile, SIGKILL);
    ++rounds;
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_GT(rounds, 0);
  EXPECT_FALSE(service().ended());
  low_->order("leave");  // its report is still taken
  EXPECT_EQ(look_->state(low_->slot()), shm::SlotState::kLeaving);
}

}  // namespace
}  // namespace sluice::test
