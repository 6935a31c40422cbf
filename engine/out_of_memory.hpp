#pragma once
#include "base/error.hpp"

namespace sluice::engine {

/// The device has less memory left than a model and its input need. Everything else on the device
/// goes on.
class OutOfMemory : public base::RunError {
 public:
  using base::RunError::RunError;
};

}  // namespace sluice::engine
