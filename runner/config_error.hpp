#pragma once
#include <stdexcept>

namespace sluice::runner {

/// Something the user wrote is wrong: one line that says what, where, and what is allowed.
/// Programs print it and exit with 2.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The run itself failed: one line. Programs print it and exit with 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice::runner
