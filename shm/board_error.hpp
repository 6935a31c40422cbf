#pragma once
#include <stdexcept>

namespace sluice::shm {

/// A board that cannot be used. what() is one line for the user.
struct BoardError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The session has no board.
struct NoBoard : BoardError {
  using BoardError::BoardError;
};

}  // namespace sluice::shm
