#pragma once
#include <string>

namespace sluice::base {

/// The text of a JSON value, `indent` spaces deeper for each level; -1: in one line. Names, paths
/// and what programs have written may hold any bytes: what is not UTF-8 is replaced, so the text is
/// valid. `Json`: nlohmann::json, or nlohmann::ordered_json.
template <class Json>
[[nodiscard]] std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::base
