#pragma once
#include <sys/types.h>

#include <string>

#include "base/fd.hpp"

/// The memory of the node's board: a memfd, which has no name. The node service makes the memfd and
/// hands its descriptor to clients.
namespace sluice::shm {

/// How /proc names the memfd: `/memfd:sluice-node-board (deleted)`.
inline constexpr const char* kNodeMemory = "sluice-node-board";

/// New memory with an empty board. Nobody can change its size. Only its user can open it again,
/// so a descriptor for reading stays one for reading. Throws BoardError.
[[nodiscard]] base::Fd make_node_memory();

/// The same memory for reading only. Empty if it cannot be opened.
[[nodiscard]] base::Fd read_only(int memory);

/// The fault that makes the file unusable as the memory of a board that `owner` made; empty if
/// there is none. Nobody but `owner` can make a file without fault: a process cannot give a file to
/// another user.
[[nodiscard]] std::string memory_fault(int memory, uid_t owner);

}  // namespace sluice::shm
