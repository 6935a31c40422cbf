#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "shm/client_name.hpp"
#include "shm/gates.hpp"
#include "shm/policy.hpp"

/// Boards that a test makes in its own memory. All their times are relative to kNow.
namespace sluice::test {

inline constexpr std::uint64_t kNow = 1'000'000'000'000;
inline constexpr std::uint64_t kMs = 1'000'000;

/// A board with a living controller (pid 7) and one device.
class BoardTest : public testing::Test {
 protected:
  BoardTest() : board_(std::make_unique<shm::Board>()) {
    board_->controller_pid.store(7);
    board_->heartbeat_ns.store(kNow - 5 * kMs);
    board_->devices[0].used.store(1);
    std::strcpy(board_->devices[0].name.data(), "Some GPU");
  }

  /// The client has the name that the interposer would choose for the command.
  shm::Slot& add_client(int index, int priority, const char* command) {
    shm::Slot& client = slot(index);
    client.pid.store(static_cast<std::uint32_t>(100 + index));
    std::strncpy(client.command.data(), command, client.command.size());
    std::string arguments(command);
    std::replace(arguments.begin(), arguments.end(), ' ', '\0');
    set_name(client, shm::client_name(arguments));
    client.policy.store(shm::kDefaultPolicy.pack());
    client.requested_policy.store(shm::kDefaultPolicy.pack());
    set_state(index, shm::SlotState::kLive, priority);
    board_->used.fetch_or(shm::bit(index));
    return client;
  }

  static void set_name(shm::Slot& client, const std::string& name) {
    std::strncpy(client.name.data(), name.c_str(), client.name.size() - 1);
  }

  void set_state(int index, shm::SlotState state, int priority) {
    slot(index).info.store(shm::SlotInfo{state, static_cast<std::uint8_t>(priority), 0, 1}.pack());
  }

  void hold(int holder, int target, std::uint64_t since_ns) {
    slot(holder).job.store(1);
    slot(holder).job_since_ns.store(since_ns);
    slot(target).gate.fetch_or(shm::bit(holder));
    slot(target).closed_since_ns.store(since_ns);
  }

  shm::Slot& slot(int index) { return board_->slots[static_cast<std::size_t>(index)]; }

  std::unique_ptr<shm::Board> board_;
};

}  // namespace sluice::test
