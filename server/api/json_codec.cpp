#include "server/api/json_codec.hpp"

#include <utility>
#include <vector>

#include "server/api/json_values.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

using engine::Tensor;
using nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxValues = std::size_t{8} << 20;

/// What Request::storage keeps.
struct Storage {
  Body body;
  std::vector<std::vector<std::byte>> converted;
};

/// Reads the parts of a request, and names the part in a refusal. Clients whose types have optional
/// fields send null for those that are absent.
const json* find(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

const json& object_of(const json& value, const std::string& what) {
  if (!value.is_object()) refuse(what + " must be an object");
  return value;
}

const json& list(const json& object, const char* key) {
  static const json kNone = json::array();
  const json* value = find(object, key);
  if (value == nullptr) return kNone;
  if (!value->is_array()) refuse("'" + std::string(key) + "' must be a list");
  return *value;
}

std::string text(const json& object, const char* key, const std::string& what) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_string()) {
    refuse(what + " must have '" + key + "', a string");
  }
  return value->get<std::string>();
}

/// Calls with the name and the value of each parameter that is not null.
template <class Use>
void each_parameter(const json& object, Use use) {
  const json* parameters = find(object, "parameters");
  if (parameters == nullptr) return;
  for (const auto& [name, value] : object_of(*parameters, "'parameters'").items()) {
    if (!value.is_null()) use(name, value);
  }
}

Parameter parameter(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool flag(const std::string& name, const json& value) {
  if (!value.is_boolean()) refuse("parameter '" + name + "' must be true or false");
  return value.get<bool>();
}

std::vector<std::int64_t> shape(const json& input, const std::string& name) {
  const json* value = find(input, "shape");
  if (value == nullptr || !value->is_array()) {
    refuse("tensor '" + name + "' must have 'shape', a list of integers");
  }
  std::vector<std::int64_t> sizes;
  for (const json& size : *value) {
    // A number above the range would wrap to a negative one.
    if (!size.is_number_integer() ||
        (size.is_number_unsigned() && !std::in_range<std::int64_t>(size.get<std::uint64_t>()))) {
      refuse("tensor '" + name + "': a size in 'shape' is no integer");
    }
    sizes.push_back(size.get<std::int64_t>());
  }
  return sizes;
}

/// Takes the next bytes behind the JSON for a tensor.
std::span<const std::byte> take(std::span<const std::byte>& binary, const std::string& name,
                                const json& size) {
  if (!size.is_number_unsigned()) {
    refuse("tensor '" + name + "': 'binary_data_size' must be an integer of 0 or more");
  }
  const auto bytes = size.get<std::uint64_t>();
  if (bytes > binary.size()) {
    refuse("tensor '" + name + "': 'binary_data_size' is " + std::to_string(bytes) + ", but " +
           std::to_string(binary.size()) + " bytes follow");
  }
  const auto taken = binary.first(bytes);
  binary = binary.subspan(bytes);
  return taken;
}

Tensor decode_input(const json& input, std::span<const std::byte>& binary, Storage& storage) {
  object_of(input, "an input");
  Tensor tensor;
  tensor.name = text(input, "name", "an input");
  tensor.type = data_type(tensor.name, text(input, "datatype", "tensor '" + tensor.name + "'"));
  tensor.shape = shape(input, tensor.name);
  const json* size = nullptr;
  each_parameter(input, [&](const std::string& name, const json& value) {
    check_tensor_parameter(tensor.name, name);
    if (name == "binary_data_size") size = &value;
  });
  const json* data = find(input, "data");
  if ((data != nullptr) == (size != nullptr)) {
    refuse("tensor '" + tensor.name + "' must have either 'data' or 'binary_data_size'");
  }
  if (size != nullptr) {
    tensor.data = take(binary, tensor.name, *size);
  } else {
    tensor.data = storage.converted.emplace_back(values_from_json(tensor, *data));
  }
  check_tensor(tensor);
  return tensor;
}

void decode_output(const json& output, Request& request, OutputFormat& format) {
  std::string name = text(object_of(output, "an output"), "name", "an output");
  each_parameter(output, [&](const std::string& parameter_name, const json& value) {
    check_tensor_parameter(name, parameter_name);
    if (parameter_name == "binary_data") format.by_name[name] = flag(parameter_name, value);
  });
  request.outputs.push_back(std::move(name));
}

void apply_parameters(const json& head, Request& request, OutputFormat& format) {
  each_parameter(head, [&](const std::string& name, const json& value) {
    if (name == "binary_data_output") {
      format.binary = flag(name, value);
    } else {
      apply_parameter(request, name, parameter(value));
    }
  });
}

/// Throws json::exception.
json parse(std::string_view text) {
  std::size_t values = 0;
  const auto guard = [&values](int depth, json::parse_event_t event, json&) {
    if (depth > kMaxDepth) refuse("the JSON is nested too deeply");
    const bool counts = event == json::parse_event_t::value ||
                        event == json::parse_event_t::array_start ||
                        event == json::parse_event_t::object_start;
    if (counts && ++values > kMaxValues) {
      refuse("the JSON has more than " + std::to_string(kMaxValues) +
             " values: send tensors as binary data");
    }
    return true;
  };
  return json::parse(text, guard);
}

/// JSON has no NaN and no infinity, but Python and others write them as bare words. The text with
/// these words as strings, which tensors of FP32 and FP64 take; nothing if there are none.
std::optional<std::string> with_quoted_numbers(std::string_view text) {
  std::string quoted;
  std::size_t copied = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && in_string)
      ++at;
    else if (text[at] == '"')
      in_string = !in_string;
    if (in_string) continue;
    for (const std::string_view word : {kNotANumber, kInfinity, kMinusInfinity}) {
      if (!text.substr(at).starts_with(word)) continue;
      quoted.append(text.substr(copied, at - copied)).append("\"").append(word).append("\"");
      at += word.size() - 1;
      copied = at + 1;
      break;
    }
  }
  if (copied == 0) return std::nullopt;
  return quoted.append(text.substr(copied));
}

}  // namespace

json parse_json(std::string_view text) {
  try {
    return parse(text);
  } catch (const json::exception& fault) {
    try {
      if (const auto quoted = with_quoted_numbers(text)) return parse(*quoted);
    } catch (const json::exception&) {  // The first fault is where the client has it.
    }
    refuse("the JSON is not valid: " + std::string(fault.what()));
  }
}

bool OutputFormat::is_binary(const std::string& output) const {
  const auto at = by_name.find(output);
  return at == by_name.end() ? binary : at->second;
}

DecodedInfer decode_infer(const Body& body, std::optional<std::size_t> json_bytes,
                          std::uint64_t headers_ns) {
  const std::size_t head_bytes = json_bytes.value_or(body.bytes.size());
  if (head_bytes > body.bytes.size()) {
    refuse("Inference-Header-Content-Length is " + std::to_string(head_bytes) +
           ", but the body has " + std::to_string(body.bytes.size()) + " bytes");
  }
  const json head = parse_json(body.bytes.substr(0, head_bytes));
  object_of(head, "the request");
  auto binary = std::as_bytes(std::span(body.bytes.substr(head_bytes)));

  DecodedInfer decoded;
  Request& request = decoded.request;
  request.headers_ns = headers_ns;
  if (find(head, "id") != nullptr) request.id = text(head, "id", "the request");
  apply_parameters(head, request, decoded.format);
  // Nothing points into a body that is JSON only.
  const auto storage = std::make_shared<Storage>(Storage{json_bytes ? body : Body{}, {}});
  for (const json& input : list(head, "inputs")) {
    request.inputs.push_back(decode_input(input, binary, *storage));
  }
  for (const json& output : list(head, "outputs")) decode_output(output, request, decoded.format);
  if (!binary.empty()) {
    refuse(std::to_string(binary.size()) + " bytes follow the last binary tensor");
  }
  for (const auto& tensor : storage->converted) request.storage_bytes += tensor.capacity();
  request.storage = storage;
  return decoded;
}

EncodedInfer encode_infer(const Echo& echo, const Response& response, const OutputFormat& format) {
  json head = {{"model_name", echo.model},
               {"model_version", version_of(echo, response)},
               {"outputs", json::array()}};
  if (!echo.id.empty()) head["id"] = echo.id;
  std::size_t binary_bytes = 0;
  bool any_binary = false;
  for (const Tensor& output : response.outputs) {
    json& to = head["outputs"].emplace_back(
        json{{"name", output.name}, {"datatype", engine::to_string(output.type)}});
    to["shape"] = output.shape;
    if (format.is_binary(output.name)) {
      to["parameters"] = {{"binary_data_size", output.data.size()}};
      binary_bytes += output.data.size();
      any_binary = true;
    } else {
      to["data"] = values_to_json(output);
    }
  }
  EncodedInfer encoded;
  try {
    encoded.body = head.dump();
  } catch (const json::exception&) {
    refuse("an output of type BYTES is not UTF-8: ask for binary data");
  }
  if (!any_binary) return encoded;
  encoded.json_bytes = encoded.body.size();
  encoded.body.reserve(encoded.body.size() + binary_bytes);
  for (const Tensor& output : response.outputs) {
    if (!format.is_binary(output.name)) continue;
    encoded.body.append(reinterpret_cast<const char*>(output.data.data()), output.data.size());
  }
  return encoded;
}

}  // namespace sluice::server::api
