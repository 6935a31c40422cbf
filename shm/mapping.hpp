#pragma once
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shm/board.hpp"

namespace sluice::shm {

/// A board that cannot be used; what() is one line for the user.
struct BoardError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// There is no board of that session.
struct NoBoard : BoardError {
  using BoardError::BoardError;
};

/// The board of a session, mapped. Boost.Interprocess opens and maps it, nothing more: its locks
/// do not survive the death of their owner. The locks here are the kernel's (open file
/// description locks): byte 0 of the object is held by the one controller, byte 1 is shared by
/// every process that has a slot. So "does anybody still use this board" has an answer for a
/// board of any layout, and no dead process can spoil it.
class BoardMapping {
 public:
  /// For a client: maps the board for reading and writing and marks it used until this object,
  /// or the process, is gone. Throws BoardError: missing, another user's, of another layout, or
  /// truncated.
  static BoardMapping attach(std::string_view session);

  /// For `status`: maps it for reading; holds nothing.
  static BoardMapping inspect(std::string_view session);

  struct Adoption;
  /// For the controller: adopts the board while any process of it lives, else makes a new one.
  /// Throws BoardError if the session has a controller, or a living board of another layout.
  static Adoption adopt_or_create(std::string_view session);

  BoardMapping() noexcept;
  BoardMapping(BoardMapping&&) noexcept;
  BoardMapping& operator=(BoardMapping&&) noexcept;
  ~BoardMapping();

  [[nodiscard]] Board& board() const noexcept;

  /// For whoever goes, at its very end: it no longer counts as a user, and if nobody else does,
  /// the board's name is removed, and before it `socket`, where one is named, which nobody listens
  /// at any more. True if it was. The mapping itself stays valid.
  bool remove_if_unused(const std::string& socket = {}) noexcept;

  /// In a forked child: closes the file descriptor and puts private, empty memory in the place of
  /// the board, so that the child neither counts as a user nor touches the board.
  void abandon_in_child() noexcept;

 private:
  enum class Access { kUse, kInspect };
  static BoardMapping open(std::string_view session, Access access);

  struct Mapped;  ///< Boost's objects, kept out of the headers of everybody else.
  std::string name_;
  std::unique_ptr<Mapped> mapped_;
};

struct BoardMapping::Adoption {
  BoardMapping mapping;
  bool adopted = false;  ///< False: the board is new.
};

}  // namespace sluice::shm
