// What a hostile program writes to the board, and what it leaves behind.
#include <csignal>
#include <optional>
#include <string>

#include "shm/gates.hpp"
#include "shm/mapping.hpp"
#include "tests/controller/node/node_service.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::test {
namespace {

class StrayWrites : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped()) return;
    start();
    mapping_.emplace(shm::BoardMapping::attach("node"));
  }
  [[nodiscard]] shm::Board& board() const { return mapping_->board(); }

  std::optional<shm::BoardMapping> mapping_;
};

// Prevents: slots that nobody has stay taken until the last program of the machine has ended.
TEST_F(StrayWrites, ASlotThatTheServiceDidNotGiveOutIsFreedAgain) {
  constexpr int kUnknown = 40;
  constexpr int kLive = 41;
  const auto write = [&](int slot, shm::SlotState state) {
    board().slots[static_cast<std::size_t>(slot)].info.store(
        shm::SlotInfo{state, 255, 0, 7}.pack());
    board().used.fetch_or(shm::bit(slot));
  };
  write(kUnknown, static_cast<shm::SlotState>(0x77));
  write(kLive, shm::SlotState::kLive);
  EXPECT_TRUE(eventually([&] { return board().used.load() == 0; }));
  for (const int slot : {kUnknown, kLive}) {
    const auto info = board().slots[static_cast<std::size_t>(slot)].info.load();
    EXPECT_EQ(shm::SlotInfo::unpack(info).state, shm::SlotState::kFree) << slot;
  }
  EXPECT_TRUE(client_of(kBert, 0)->attached());
}

// Prevents: a user forges lines in the log of the service, which is where a site looks who asked
// for what.
TEST_F(StrayWrites, TextOfTheBoardForgesNoLineInTheLog) {
  const auto client = client_of(kBert, 0);
  ASSERT_TRUE(client->attached());
  auto& command = board().slots[static_cast<std::size_t>(client->slot())].command;
  const std::string forged = "x)\nforged: \x1b[2J";
  // The service writes the command line once, and might overwrite ours.
  ASSERT_TRUE(
      eventually([&] { return std::string(command.data()).find(' ') != std::string::npos; }));
  forged.copy(command.data(), command.size());
  client->process().signal(SIGKILL);
  ASSERT_TRUE(logs("client died: slot " + std::to_string(client->slot())));
  EXPECT_TRUE(logs("x)?forged: ?[2J")) << "the text itself is logged";
  EXPECT_EQ(log().find("\nforged"), std::string::npos);
  EXPECT_EQ(log().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
