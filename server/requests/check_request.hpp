#pragma once
#include <vector>

#include "engine/served_model.hpp"
#include "server/service/service.hpp"

namespace sluice::server {

/// Checks a request against what the model takes: names, types, shapes, the number of items, and
/// the names of wanted outputs. The protocols have checked that each tensor has the bytes of its
/// shape. On success the inputs are in the model's order, and `items` is the size of their first
/// dimension.
[[nodiscard]] Status check_request(const engine::ServedModel& model, std::size_t batch_size,
                                   Request& request, std::size_t& items);

}  // namespace sluice::server
