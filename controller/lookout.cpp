#include "controller/lookout.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/install.hpp"
#include "base/mps_join.hpp"
#include "base/processes.hpp"
#include "shm/gain.hpp"
#include "shm/outside.hpp"
#include "shm/target.hpp"

namespace sluice::controller {

Lookout::Lookout(shm::Board& board, std::string session) {
  shared_->board = &board;
  shared_->session = std::move(session);
  shared_->ledger = Ledger(shm::gain_words(board).load());
  std::thread([shared = shared_] { look(shared); }).detach();
}

Lookout::~Lookout() {
  const std::lock_guard lock(shared_->mutex);
  shared_->board = nullptr;
  shared_->wake.notify_one();
}

void Lookout::show(shm::Board& board, const std::map<int, shm::OutsideWord>& found) noexcept {
  for (std::size_t i = 0; i < shm::kMaxDevices; ++i) {
    const auto known = found.find(static_cast<int>(i));
    board.devices[i].outside.store(known == found.end() ? 0 : known->second.pack());
  }
}

bool Lookout::matter(const shm::Board& board) noexcept {
  return std::any_of(board.slots.begin(), board.slots.end(), [](const shm::Slot& slot) {
    const bool outranked = (slot.outranked.load() & shm::kOutranked) != 0;
    const bool alone = shm::Target::unpack(slot.target.load()).is_relative();
    return shm::SlotInfo::unpack(slot.info.load()).state == shm::SlotState::kLive &&
           (outranked || alone);
  });
}

Lookout::Use Lookout::use() const {
  const std::lock_guard lock(shared_->mutex);
  return {shared_->ledger.devices(), shared_->ledger.jobs()};
}

namespace {

/// What the driver says of the GPUs that critical clients use: the part of the time that each was
/// busy.
std::map<int, double> busy_devices(const shm::Snapshot& snapshot) {
  std::map<int, double> busy;
  for (const shm::DeviceSnapshot& device : snapshot.devices) {
    const bool matters = std::any_of(snapshot.clients.begin(), snapshot.clients.end(),
                                     [&](const shm::ClientSnapshot& client) {
                                       return client.device == device.index && client.priority > 0;
                                     });
    if (device.simulated || !matters) continue;
    if (const auto part = base::gpu_utilization(device.uuid)) busy[device.index] = *part;
  }
  return busy;
}

}  // namespace

/// A process outside whose use nobody can tell must not lower the protection of a critical client:
/// it counts as idle for short slices, and as awake for long ones.
std::map<int, shm::OutsideWord> Lookout::look_outside(Shared& shared,
                                                      const shm::Snapshot& snapshot) {
  const std::vector<shm::OutsideProcess> found = shm::find_outside(snapshot, shared.session);
  const auto now_us =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  std::map<int, OutsideUse::Device> devices;
  for (const shm::DeviceSnapshot& device : snapshot.devices) {
    const bool matters = std::any_of(
        found.begin(), found.end(),
        [&](const shm::OutsideProcess& process) { return process.device == device.index; });
    if (!matters) continue;
    OutsideUse::Device& use = devices[device.index];
    if (!device.simulated) use.percent = base::gpu_use(device.uuid, shared.measured_us);
    use.clients = static_cast<int>(std::count_if(
        snapshot.clients.begin(), snapshot.clients.end(),
        [&](const shm::ClientSnapshot& client) { return client.device == device.index; }));
    if (!use.percent && shared.not_measured.insert(device.index).second) {
      spdlog::info("{}: nobody can tell whether programs outside Sluice use it; they count as idle",
                   device.uuid);
    }
  }
  shared.measured_us = now_us;
  return shared.outside_use.look(found, devices, base::monotonic_ns());
}

void Lookout::look_once(Shared& shared, std::unique_lock<std::mutex>& lock) {
  constexpr std::uint64_t kAskDriver = 5;  // starting NVML costs milliseconds
  shm::Snapshot snapshot = shm::take_snapshot(*shared.board, base::monotonic_ns());
  const bool outside = matter(*shared.board);
  std::map<int, shm::OutsideWord> found;
  lock.unlock();
  base::restore_mps_keeper(base::Install::of_this_program(), shared.session);
  if (outside) found = look_outside(shared, snapshot);
  if (shared.looks++ % kAskDriver == 0) shared.busy = busy_devices(snapshot);
  lock.lock();
  if (shared.board == nullptr) return;
  if (outside) show(*shared.board, found);
  shared.ledger.look(std::move(snapshot), shared.busy);
  shm::gain_words(*shared.board).store(shared.ledger.gain());
}

void Lookout::look(const std::shared_ptr<Shared>& shared) {
  constexpr std::chrono::seconds kPeriod{2};
  std::unique_lock lock(shared->mutex);
  while (shared->board != nullptr) {
    try {
      look_once(*shared, lock);
    } catch (const std::exception& error) {  // no memory, no descriptor: no reason to end
      if (!lock.owns_lock()) lock.lock();
      spdlog::warn("cannot look at the use of the GPUs: {}", error.what());
    }
    shared->wake.wait_for(lock, kPeriod, [&] { return shared->board == nullptr; });
  }
}

}  // namespace sluice::controller
