#pragma once
#include <string>

#include "shm/mapping.hpp"

namespace sluice::test {

/// The board of a session as `sluice status` sees it.
class Look {
 public:
  explicit Look(const std::string& session) : mapping_(shm::BoardMapping::inspect(session)) {}
  [[nodiscard]] const shm::Board& board() const { return mapping_.board(); }
  [[nodiscard]] const shm::Slot& slot(int index) const {
    return board().slots[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::uint64_t gate(int index) const { return slot(index).gate.load(); }
  [[nodiscard]] shm::SlotState state(int index) const {
    return shm::SlotInfo::unpack(slot(index).info.load()).state;
  }

 private:
  shm::BoardMapping mapping_;
};

}  // namespace sluice::test
