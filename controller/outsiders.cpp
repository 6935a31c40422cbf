#include "controller/outsiders.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "shm/outside.hpp"

namespace sluice::controller {

Outsiders::Outsiders(shm::Board& board, std::string session) {
  shared_->board = &board;
  shared_->session = std::move(session);
  std::thread([shared = shared_] { look(shared); }).detach();
}

Outsiders::~Outsiders() {
  const std::lock_guard lock(shared_->mutex);
  shared_->board = nullptr;
  shared_->wake.notify_one();
}

void Outsiders::show(shm::Board& board, const std::vector<shm::OutsideProcess>& found) noexcept {
  std::array<std::uint32_t, shm::kMaxDevices> count{};
  for (const shm::OutsideProcess& process : found) {
    const auto device = static_cast<std::size_t>(process.device);
    if (device < count.size()) ++count[device];
  }
  for (std::size_t i = 0; i < count.size(); ++i) board.devices[i].outside.store(count[i]);
}

bool Outsiders::matter(const shm::Board& board) noexcept {
  return std::any_of(board.slots.begin(), board.slots.end(), [](const shm::Slot& slot) {
    return shm::SlotInfo::unpack(slot.info.load()).state == shm::SlotState::kLive &&
           (slot.outranked.load() & shm::kOutranked) != 0;
  });
}

namespace {

/// Those that were found. None if the system has no memory or no descriptor for a look: the thread
/// must not end the controller.
std::vector<shm::OutsideProcess> found_in(const shm::Snapshot& snapshot,
                                          const std::string& session) noexcept {
  try {
    return shm::find_outside(snapshot, session);
  } catch (const std::exception& error) {
    spdlog::warn("cannot look for programs outside: {}", error.what());
    return {};
  }
}

}  // namespace

void Outsiders::look(const std::shared_ptr<Shared>& shared) {
  constexpr std::chrono::seconds kPeriod{2};
  std::unique_lock lock(shared->mutex);
  while (shared->board != nullptr) {
    if (matter(*shared->board)) {
      const shm::Snapshot snapshot = shm::take_snapshot(*shared->board, base::monotonic_ns());
      lock.unlock();
      const std::vector<shm::OutsideProcess> found = found_in(snapshot, shared->session);
      lock.lock();
      if (shared->board != nullptr) show(*shared->board, found);
    }
    shared->wake.wait_for(lock, kPeriod, [&] { return shared->board == nullptr; });
  }
}

}  // namespace sluice::controller
