#pragma once
#include <stdexcept>

/// How our programs end: the exit codes, and the errors that lead to them.
namespace sluice::base {

inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;  ///< The command line was good, the run failed.
inline constexpr int kExitUsage = 2;   ///< Wrong usage or configuration.

/// The user wrote something wrong. what() is one line: what was wrong, where, what is allowed.
/// A program prints that line and exits with kExitUsage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The run itself failed. what() is one line. A program prints it and exits with kExitFailed.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice::base
