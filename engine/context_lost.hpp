#pragma once
#include "base/error.hpp"

namespace sluice::engine {

/// The device context is unusable, for example after a fault of a kernel. Only a new process helps.
class ContextLost : public base::RunError {
 public:
  using base::RunError::RunError;
};

}  // namespace sluice::engine
