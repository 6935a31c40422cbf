#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// Writes one JSON line per look at a session, for programs: its clients, and the duration of every
/// job and every step that has ended since the previous line.
class JobFollower {
 public:
  explicit JobFollower(std::string session) : session_(std::move(session)) {}

  /// The line of one look. `now` is a snapshot of `board`. The first line has no durations of
  /// clients that were there before it, unless a line without a board came first.
  [[nodiscard]] std::string line(const shm::Board& board, const shm::Snapshot& now);

  /// The line of a look that found no board.
  [[nodiscard]] std::string line_without_board(std::uint64_t now_ns);

  /// How many jobs and steps of a client have ended.
  struct Ended {
    std::uint64_t jobs = 0;
    std::uint64_t steps = 0;
  };

 private:
  struct Followed {
    shm::ClientSnapshot last;  ///< In the previous line.
    Ended reported;            ///< In the lines so far.
  };

  std::string session_;
  std::optional<std::uint64_t> board_id_;  ///< In the previous line; 0: no board.
  std::map<int, Followed> followed_;       ///< Clients of the previous line, by slot.
};

/// Prints a line now and after every `interval_s`, also while there is no such session. Ends on a
/// signal, or when the reader of standard output is gone. Throws shm::BoardError.
void follow_session(const std::string& session, double interval_s);

}  // namespace sluice::tools
