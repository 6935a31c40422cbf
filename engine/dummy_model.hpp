#pragma once
#include <cstdint>
#include <memory>

#include "engine/served_model.hpp"

namespace sluice::engine {

struct DummyOptions {
  std::size_t batch_size = 1;
  std::size_t blocks = 1;
  std::uint64_t block_us = 0;  ///< Each block takes this long, without using a processor.
};

/// A model without work: input0 (FP32, any size) is returned as output0. Shows what a server costs
/// by itself, and stands in for a model in tests.
[[nodiscard]] std::unique_ptr<ServedModel> make_dummy(const DummyOptions& options);

}  // namespace sluice::engine
