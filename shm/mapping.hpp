#pragma once
#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "shm/board.hpp"
#include "shm/board_error.hpp"

namespace sluice::shm {

/// The mapped board of a session. The board of the session `node` is memory without a name, for
/// which attach() and inspect() ask the node service. The rest of this comment is about the other
/// sessions. The locks are open file description locks of the kernel. The controller holds byte 0
/// of the object, and every process that has a slot shares byte 1. So a board of any layout shows
/// whether a process still uses it, and no dead process leaves a lock behind.
///
/// A name that was removed cannot be given back. The controller then hands the board out over its
/// socket, and the next controller finds it among the open files of its users.
class BoardMapping {
 public:
  /// For a client: maps the board for reading and writing, and marks the board as used until this
  /// object or the process ends. Throws BoardError if the board is missing, truncated, of another
  /// layout, or another user's; also if the node service gives the board for reading only, unless
  /// `rights` is kAny.
  enum class Rights { kWrite, kAny };
  static BoardMapping attach(std::string_view session, Rights rights = Rights::kWrite);

  /// For `status`: maps the board for reading and takes no lock.
  static BoardMapping inspect(std::string_view session);

  enum class Access { kUse, kInspect };
  /// The board in the memory of a node, which `owner` must have made: see memory_fault(). Mapped
  /// for reading if the descriptor is for reading. Throws BoardError.
  static BoardMapping of_memory(base::Fd memory, uid_t owner, Access access);

  struct Adoption;
  /// For the controller: adopts the board if any process still uses it, else creates a new one.
  /// Throws BoardError if the session has a controller, or a board of another layout in use.
  static Adoption adopt_or_create(std::string_view session);

  BoardMapping() noexcept;
  BoardMapping(BoardMapping&&) noexcept;
  BoardMapping& operator=(BoardMapping&&) noexcept;
  ~BoardMapping();

  [[nodiscard]] Board& board() const noexcept;
  /// Whether this process may write to the board. If not, a write ends the process.
  [[nodiscard]] bool writable() const noexcept;

  /// The board once more, at another address, for as long as the process lives; null if that
  /// fails. A forked child does not have it.
  [[nodiscard]] void* another_view() const noexcept;

  /// What leads to the board's name: for a session other than `node`. Does not allocate.
  enum class Name {
    kOurs,
    kGone,  ///< As after a clean-up of /dev/shm. The next controller finds the board all the same.
    kAnothers,  ///< Programs that start now use another board.
  };
  [[nodiscard]] Name name() const noexcept;

  /// Stays ours.
  [[nodiscard]] int descriptor() const noexcept;

  /// For a process that leaves, as its last step: stops counting as a user. If no other user is
  /// left, removes `socket` (if not empty) and then the board's name, and returns true. The mapping
  /// stays valid.
  bool remove_if_unused(const std::string& socket = {}) noexcept;

  /// What the node service says about itself, in one line; empty for other sessions.
  [[nodiscard]] const std::string& about() const noexcept { return about_; }

  /// In a forked child: closes the file descriptor and replaces the board with private, empty
  /// memory. The child then neither counts as a user nor touches the board.
  void abandon_in_child() noexcept;

 private:
  static BoardMapping of_node(Access access);
  static BoardMapping open(std::string_view session, Access access);

  struct Mapped;           ///< Boost's objects, kept out of this header.
  std::string name_;       ///< Empty for the node's board.
  bool nameless_ = false;  ///< The board had lost its name; its controller sent it.
  std::string about_;
  std::unique_ptr<Mapped> mapped_;
};

/// Whether a controller has the session's board, also a stopped one. False for the session `node`,
/// and if the board's name was removed. Takes no lock.
[[nodiscard]] bool has_controller(std::string_view session) noexcept;

struct BoardMapping::Adoption {
  BoardMapping mapping;
  bool adopted = false;  ///< False: the board is new.
};

}  // namespace sluice::shm
