#pragma once
#include <cstddef>
#include <cstdint>

#include "shm/board.hpp"

namespace sluice::intercept {

/// The place of a client on the board.
struct Seat {
  shm::Board& board;
  int slot;
  std::uint32_t generation;

  [[nodiscard]] shm::Slot& own() const noexcept {
    return board.slots[static_cast<std::size_t>(slot)];
  }
};

}  // namespace sluice::intercept
