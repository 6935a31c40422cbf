#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/tensor.hpp"

/// The elements of a tensor as JSON values. Throws Refusal.
namespace sluice::server::api {

/// How tensors of FP32 and FP64 have what JSON has no number for.
constexpr std::string_view kNotANumber = "NaN";
constexpr std::string_view kInfinity = "Infinity";
constexpr std::string_view kMinusInfinity = "-Infinity";

/// data: a value, or arrays of values in any nesting, in row-major order. FP16 and BF16 have no
/// JSON form.
[[nodiscard]] std::vector<std::byte> values_from_json(const engine::Tensor& tensor,
                                                      const nlohmann::json& data);

/// A flat array.
[[nodiscard]] nlohmann::json values_to_json(const engine::Tensor& tensor);

}  // namespace sluice::server::api
