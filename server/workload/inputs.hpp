#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "server/workload/client.hpp"

/// Input data for any model.
namespace sluice::server::workload {

struct InputOptions {
  std::int64_t batch = 1;  ///< Items.
  bool random = false;     ///< Else zeros.
  std::uint32_t seed = 0;
  std::int64_t dim = 1;  ///< Size of the other dimensions that may have any size.
};

/// The inputs of a request. The first dimension, if it may have any size, is the batch. Random
/// values are small: integers may be indices of a table. Throws RunError if the model takes no
/// batch, or an input is too large.
[[nodiscard]] std::vector<Input> make_inputs(const std::string& model,
                                             const std::vector<InputSpec>& specs,
                                             const InputOptions& options);

}  // namespace sluice::server::workload
