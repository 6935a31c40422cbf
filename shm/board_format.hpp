#pragma once
#include <string>

#include "shm/board.hpp"

namespace sluice::shm {

/// Fills new, zeroed memory. The magic comes last.
void initialise(Board& board);

/// The fault that makes memory of at least sizeof(Board) bytes unusable as a board; empty if there
/// is none.
[[nodiscard]] std::string format_fault(const Board& board);

/// The fault of memory of `size` bytes, which is too short for a board.
[[nodiscard]] std::string size_fault(std::uint64_t size);

}  // namespace sluice::shm
