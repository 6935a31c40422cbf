#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"

/// How a node service finds the board of the service before it: that one wrote down which memory
/// the board is, and the clients still have this memory open.
namespace sluice::controller {

/// Identifies the memory of a board.
struct NodeRecord {
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t board_id = 0;

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

/// Nothing if the file is missing or is no record.
[[nodiscard]] std::optional<NodeRecord> read_record(const std::string& file);

/// Replaces the file at once, with mode 0600. Throws std::runtime_error, one line.
void write_record(const std::string& file, const NodeRecord& record);

/// The record of this memory, which has a board of this id.
[[nodiscard]] NodeRecord record_of(int memory, std::uint64_t board_id);

/// Looks for the memory among the open files of all processes, and opens it for reading and
/// writing. Empty if no process has it open, or none that this process may examine: another user's
/// needs CAP_SYS_PTRACE. `unseen` is the number of processes that it may not examine. Finds stopped
/// processes too. No other process can delay it: it asks no file system for an answer, and takes no
/// lock of another process.
[[nodiscard]] base::Fd find_memory(const NodeRecord& record, int& unseen);

}  // namespace sluice::controller
