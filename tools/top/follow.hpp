#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// Writes, for programs, one JSON line per look at a session: its clients, and the duration of
/// every job that has ended since the line before.
class JobFollower {
 public:
  explicit JobFollower(std::string session) : session_(std::move(session)) {}

  /// The line of one look. `now` is what take_snapshot() read from `board`. The first line has no
  /// durations of clients that were there already, unless a line without a board came before.
  [[nodiscard]] std::string line(const shm::Board& board, const shm::Snapshot& now);

  /// The line of a look that found no board.
  [[nodiscard]] std::string line_without_board(std::uint64_t now_ns);

 private:
  struct Followed {
    shm::ClientSnapshot last;    ///< As of the line before.
    std::uint64_t reported = 0;  ///< Jobs of which it was told so far.
  };

  std::string session_;
  std::optional<std::uint64_t> board_id_;  ///< Of the line before; 0: it had no board.
  std::map<int, Followed> followed_;       ///< By slot.
};

/// Prints a line now and after every `interval_s`, also while there is no such session, until a
/// signal comes or nobody reads standard output any more. Throws shm::BoardError.
void follow_session(const std::string& session, double interval_s);

}  // namespace sluice::tools
