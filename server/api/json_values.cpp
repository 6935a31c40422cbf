#include "server/api/json_values.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "base/json_text.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

using engine::DataType;
using engine::Tensor;
using nlohmann::json;

[[noreturn]] void no_json_form(const Tensor& tensor) {
  refuse("tensor '" + tensor.name + "': " + std::string(engine::to_string(tensor.type)) +
         " has no JSON form: use binary data");
}

/// Calls with a value of the C++ type of the elements. Not for BYTES.
template <typename Call>
auto with_type(const Tensor& tensor, Call call) {
  switch (tensor.type) {
    case DataType::kBool:
      return call(bool());
    case DataType::kUint8:
      return call(std::uint8_t());
    case DataType::kUint16:
      return call(std::uint16_t());
    case DataType::kUint32:
      return call(std::uint32_t());
    case DataType::kUint64:
      return call(std::uint64_t());
    case DataType::kInt8:
      return call(std::int8_t());
    case DataType::kInt16:
      return call(std::int16_t());
    case DataType::kInt32:
      return call(std::int32_t());
    case DataType::kInt64:
      return call(std::int64_t());
    case DataType::kFp32:
      return call(float());
    case DataType::kFp64:
      return call(double());
    case DataType::kFp16:
    case DataType::kBf16:
    case DataType::kBytes:
      break;
  }
  no_json_form(tensor);
}

[[noreturn]] void refuse_value(const Tensor& tensor, const json& value) {
  refuse("tensor '" + tensor.name + "': " + base::json_text(value).substr(0, 40) + " is no " +
         std::string(engine::to_string(tensor.type)));
}

template <typename Element>
Element element(const Tensor& tensor, const json& value) {
  if constexpr (std::is_same_v<Element, bool>) {
    if (value.is_boolean()) return value.get<bool>();
  } else if constexpr (std::is_floating_point_v<Element>) {
    if (value.is_number()) {
      const auto number = static_cast<Element>(value.get<double>());
      if (std::isfinite(number)) return number;
    } else if (value.is_string()) {
      using Limits = std::numeric_limits<Element>;
      const auto& word = value.get_ref<const std::string&>();
      if (word == kNotANumber) return Limits::quiet_NaN();
      if (word == kInfinity) return Limits::infinity();
      if (word == kMinusInfinity) return -Limits::infinity();
    }
  } else if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (std::in_range<Element>(number)) return static_cast<Element>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (std::in_range<Element>(number)) return static_cast<Element>(number);
  }
  refuse_value(tensor, value);
}

void append(std::vector<std::byte>& out, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

void append_value(const Tensor& tensor, const json& value, std::vector<std::byte>& out) {
  if (tensor.type == DataType::kBytes) {
    if (!value.is_string()) refuse_value(tensor, value);
    const auto& text = value.get_ref<const std::string&>();
    const auto length = static_cast<std::uint32_t>(text.size());
    append(out, &length, sizeof(length));
    append(out, text.data(), text.size());
    return;
  }
  with_type(tensor, [&](auto zero) {
    const auto converted = element<decltype(zero)>(tensor, value);
    append(out, &converted, sizeof(converted));
  });
}

/// The depth is that of parse_json() at most.
void append_values(const Tensor& tensor, const json& data, std::vector<std::byte>& out) {
  if (!data.is_array()) return append_value(tensor, data, out);
  for (const json& inner : data) append_values(tensor, inner, out);
}

json bytes_to_json(const Tensor& tensor) {
  json values = json::array();
  std::span<const std::byte> rest = tensor.data;
  while (!rest.empty()) {
    std::uint32_t length = 0;
    std::memcpy(&length, rest.data(), sizeof(length));
    rest = rest.subspan(sizeof(length));
    values.push_back(std::string(reinterpret_cast<const char*>(rest.data()), length));
    rest = rest.subspan(length);
  }
  return values;
}

}  // namespace

std::vector<std::byte> values_from_json(const Tensor& tensor, const json& data) {
  std::vector<std::byte> out;
  const auto count = engine::element_count(tensor.shape);
  // The client's shape decides how much is reserved only as far as the client sent values.
  if (count && data.is_array() && *count == data.size()) {
    out.reserve(*count * engine::size_of(tensor.type));
  }
  append_values(tensor, data, out);
  return out;
}

json values_to_json(const Tensor& tensor) {
  if (tensor.type == DataType::kBytes) return bytes_to_json(tensor);
  return with_type(tensor, [&](auto zero) {
    json values = json::array();
    const std::size_t count = tensor.data.size() / sizeof(zero);
    values.get_ref<json::array_t&>().reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      auto value = zero;
      std::memcpy(&value, tensor.data.data() + i * sizeof(value), sizeof(value));
      values.push_back(value);
    }
    return values;
  });
}

}  // namespace sluice::server::api
