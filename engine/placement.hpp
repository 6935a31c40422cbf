#pragma once
#include <cstdint>

namespace sluice::engine {

/// How device memory for weights comes and goes.
enum class Placement : std::uint8_t {
  kFixed,     ///< Pages at an address that never changes, so captured CUDA graphs stay valid.
  kAnywhere,  ///< One allocation of the driver, at another address each time.
};

}  // namespace sluice::engine
