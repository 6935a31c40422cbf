#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::profiler {

/// JSON as Python's json.dumps() writes it: ", " and ": " between values, floats by their shortest
/// digits. So a record that is read and written again has the same bytes. Text must be ASCII or is
/// written as UTF-8, where Python would escape it.
[[nodiscard]] std::string python_json(const nlohmann::ordered_json& value);

}  // namespace sluice::profiler
