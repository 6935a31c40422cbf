#pragma once
#include <stdexcept>

/// The exit codes of our programs, and the exceptions that lead to them.
namespace sluice::base {

inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;  ///< The command line was correct, but the run failed.
inline constexpr int kExitUsage = 2;   ///< Wrong usage or configuration.

/// A mistake of the user. what() is one line: what was wrong, where, and what is allowed. A program
/// prints the line and exits with kExitUsage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A failure of the run. what() is one line. A program prints it and exits with kExitFailed.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice::base
