#include "shm/board_format.hpp"

#include <sys/random.h>

#include "base/clock.hpp"

namespace sluice::shm {

void initialise(Board& board) {
  for (Slot& slot : board.slots) slot.alive.initialise();
  std::uint64_t board_id = 0;
  if (getrandom(&board_id, sizeof(board_id), 0) != sizeof(board_id))
    board_id = base::monotonic_ns();
  board.board_id.store(board_id | 1U);
  board.max_hold_ns.store(kDefaultMaxHoldNs);
  board.heartbeat_ns.store(base::monotonic_ns());
  board.layout_version.store(kLayoutVersion);
  board.size.store(sizeof(Board));
  board.magic.store(kBoardMagic);
}

std::string format_fault(const Board& board) {
  if (board.magic.load() != kBoardMagic) return "is not a board";
  if (board.layout_version.load() != kLayoutVersion || board.size.load() != sizeof(Board)) {
    return "has layout version " + std::to_string(board.layout_version.load()) +
           ", this program has " + std::to_string(kLayoutVersion);
  }
  return {};
}

std::string size_fault(std::uint64_t size) {
  return "is truncated (" + std::to_string(size) + " of " + std::to_string(sizeof(Board)) +
         " bytes)";
}

}  // namespace sluice::shm
