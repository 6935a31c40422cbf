#include "controller/room.hpp"

#include <bit>

namespace sluice::controller {

using shm::SlotInfo;
using shm::SlotState;

int Room::clients_of(uid_t uid) {
  int count = 0;
  for (int slot = 0; slot < shm::kSlots; ++slot) {
    const bool taken = clients_.info(slot).state != SlotState::kFree;
    count += taken && clients_.tenant(slot).uid == uid ? 1 : 0;
  }
  return count;
}

/// Some slots are kept for those who may hold others: one of them without a slot has no protection
/// at all. So clients that ask for nothing cannot take all slots, and users who are limited leave a
/// few to those who are not.
std::string Room::fault_of_slot(uid_t uid, std::uint8_t priority, const Terms& terms) {
  constexpr int kKeptFromBestEffort = 16;
  constexpr int kKeptFromLimited = 4;
  const bool limited = terms.max_priority < Terms{}.max_priority;
  const int kept = priority == 0 ? kKeptFromBestEffort : limited ? kKeptFromLimited : 0;
  const int left = shm::kSlots - std::popcount(clients_.view.used().load());
  if (left == 0) {
    return "all " + std::to_string(shm::kSlots) +
           " slots are taken; end a client, or use another session";
  }
  if (clients_of(uid) >= terms.max_clients) {
    return "user " + admission_.user_name(uid) + " has " + std::to_string(terms.max_clients) +
           " clients, the most that the site policy allows";
  }
  if (left > kept) return {};
  return "no slot is left for priority " + std::to_string(priority) + ": the last " +
         std::to_string(kept) + " are kept for higher ones; end a client";
}

Room::DeviceUse Room::use_of_device(std::uint8_t device, uid_t uid) {
  DeviceUse use = DeviceUse::kNone;
  for (int slot = 0; slot < shm::kSlots; ++slot) {
    const SlotInfo info = clients_.info(slot);
    if (info.state == SlotState::kFree || info.device != device) continue;
    if (clients_.tenant(slot).uid != uid) return DeviceUse::kShared;
    use = DeviceUse::kOwn;
  }
  return use;
}

/// A client names its device itself, so a user could invent more devices than there is room for.
int Room::devices_of(uid_t uid) {
  int count = 0;
  for (std::uint8_t index = 0; index < shm::kMaxDevices; ++index) {
    const bool used = clients_.board.devices[index].used.load() != 0;
    count += used && use_of_device(index, uid) == DeviceUse::kOwn ? 1 : 0;
  }
  return count;
}

std::optional<std::uint8_t> Room::device_index(uid_t uid, const Terms& terms,
                                               const shm::Request& request, std::string& full) {
  auto& devices = clients_.board.devices;
  std::optional<std::uint8_t> free;
  int left = 0;
  for (std::uint8_t index = 0; index < shm::kMaxDevices; ++index) {
    const bool used = devices[index].used.load() != 0;
    if (used && devices[index].uuid == request.device_uuid) return index;
    if (used && use_of_device(index, uid) != DeviceUse::kNone) continue;
    ++left;
    if (!free) free = index;
  }
  const int most = admission_.most_devices_of_a_user(uid);
  if (devices_of(uid) >= most) {
    full = "user " + admission_.user_name(uid) + " has " + std::to_string(most) +
           " devices, the most for a user";
    return std::nullopt;
  }
  // The same rule as for slots.
  constexpr int kKeptFromReaders = 8;
  if (left <= (terms.reader() ? kKeptFromReaders : 0)) {
    full = "all " + std::to_string(shm::kMaxDevices - (left == 0 ? 0 : kKeptFromReaders)) +
           (left == 0 ? " devices of a session are taken; use another session for more"
                      : " devices for users of priority 0 are taken");
    return std::nullopt;
  }
  shm::Device& device = devices[*free];
  device.used.store(0);
  device.uuid = request.device_uuid;
  store_text(device.name.data(), device.name.size(),
             printable(shm::text_in(request.device_name), device.name.size() - 1));
  device.used.store(1);
  return free;
}

}  // namespace sluice::controller
