#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "controller/admission.hpp"
#include "controller/clients.hpp"
#include "shm/messages.hpp"

namespace sluice::controller {

/// The slots and the places for devices on the board: how many each user may have, and which are
/// kept for those who may hold others.
class Room {
 public:
  Room(Clients& clients, Admission& admission) : clients_(clients), admission_(admission) {}

  /// Why there is no slot for a client of the user with this priority; empty if there is one.
  [[nodiscard]] std::string fault_of_slot(uid_t uid, std::uint8_t priority, const Terms& terms);
  /// The device's place on the board. Nothing if there is none, and in `full` why.
  [[nodiscard]] std::optional<std::uint8_t> device_index(uid_t uid, const Terms& terms,
                                                         const shm::Request& request,
                                                         std::string& full);

 private:
  /// By clients of nobody, of this user only, or of another user too.
  enum class DeviceUse : std::uint8_t { kNone, kOwn, kShared };

  [[nodiscard]] int clients_of(uid_t uid);
  [[nodiscard]] DeviceUse use_of_device(std::uint8_t device, uid_t uid);
  [[nodiscard]] int devices_of(uid_t uid);

  Clients& clients_;
  Admission& admission_;
};

}  // namespace sluice::controller
