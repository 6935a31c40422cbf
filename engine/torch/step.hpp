#pragma once
#include <ATen/core/stack.h>

#include <functional>

namespace sluice::engine {

/// A part of a model. Replaces its inputs on the stack by its outputs.
using Step = std::function<void(torch::jit::Stack&)>;

}  // namespace sluice::engine
