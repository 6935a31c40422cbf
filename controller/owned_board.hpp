#pragma once
#include <cstdint>
#include <string>

#include "shm/mapping.hpp"

namespace sluice::controller {

/// Ownership of a board, which was adopted or created. The board names this process as its
/// controller. Ownership ends last, so that the socket is gone before another controller can start.
class OwnedBoard {
 public:
  virtual ~OwnedBoard();
  OwnedBoard(const OwnedBoard&) = delete;
  OwnedBoard& operator=(const OwnedBoard&) = delete;

  [[nodiscard]] shm::Board& board() const noexcept { return mapping_.board(); }
  [[nodiscard]] bool adopted() const noexcept { return adopted_; }
  [[nodiscard]] bool any_client_lives() const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return mapping_.descriptor(); }

  /// On every heartbeat: says it if the name of the board does not lead to it any more.
  virtual void look_after_name(std::uint64_t /*now_ns*/) {}

 protected:
  OwnedBoard(shm::BoardMapping mapping, bool adopted, std::uint64_t max_hold_ns);

  shm::BoardMapping mapping_;

 private:
  bool adopted_;
};

/// Of a session of this user.
class SessionBoard : public OwnedBoard {
 public:
  /// Throws shm::BoardError if the session has a controller or its board cannot be used.
  SessionBoard(const std::string& session, std::uint64_t max_hold_ns);
  ~SessionBoard() override;
  SessionBoard(const SessionBoard&) = delete;
  SessionBoard& operator=(const SessionBoard&) = delete;

  void look_after_name(std::uint64_t now_ns) override;

 private:
  SessionBoard(shm::BoardMapping::Adoption adoption, std::uint64_t max_hold_ns);

  std::uint64_t lost_since_ns_ = 0;  ///< 0: the name leads to the board.
  bool said_ = false;
};

}  // namespace sluice::controller
