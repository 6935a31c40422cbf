#pragma once
#include <ATen/core/ivalue.h>

#include <string>

namespace sluice::engine {

/// A hash of every bit of a model's outputs, including types and shapes, as 16 hexadecimal digits.
/// Waits for the GPU and copies the outputs.
[[nodiscard]] std::string digest_of(const c10::IValue& outputs);

}  // namespace sluice::engine
