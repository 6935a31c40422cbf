#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "controller/owned_board.hpp"

namespace sluice::controller {

/// The folder of the node service, locked: one service works there. Made if it is missing.
class NodeFolder {
 public:
  /// Throws std::runtime_error, one line, if another service has the folder, or if another user may
  /// write to it.
  explicit NodeFolder(std::string path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string record() const { return path_ + "/board"; }

 private:
  std::string path_;
  base::Fd lock_;
};

/// The board of the node: adopted if a program runs on it, and any process or the service manager
/// has it open; else new.
class NodeBoard : public OwnedBoard {
 public:
  /// Throws shm::BoardError or std::runtime_error.
  static std::unique_ptr<NodeBoard> take(NodeFolder folder, std::uint64_t max_hold_ns);

  /// Descriptors of the board for clients.
  [[nodiscard]] int memory() const noexcept { return memory_.get(); }
  [[nodiscard]] int for_reading() const noexcept { return for_reading_.get(); }

 private:
  NodeBoard(NodeFolder folder, base::Fd memory, bool adopted, std::uint64_t max_hold_ns);

  NodeFolder folder_;
  base::Fd memory_;
  base::Fd for_reading_;
};

}  // namespace sluice::controller
