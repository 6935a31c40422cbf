#pragma once
#include <exception>
#include <string>

#include "base/error.hpp"

namespace sluice::engine {

/// The model and its input need more memory than the GPU has left. The run goes on without it.
class OutOfMemory : public base::RunError {
 public:
  using base::RunError::RunError;
};

/// The sentence of an error of LibTorch that says what is wrong, without its traces of two stacks
/// and of the model's source.
[[nodiscard]] std::string one_line(const std::exception& error);

/// Throws what LibTorch threw again as base::RunError, or OutOfMemory, with `what` in front.
[[noreturn]] void rethrow_torch_error(const std::exception& error, const std::string& what);

}  // namespace sluice::engine
