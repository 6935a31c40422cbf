#include "server/api/request_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>

#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

/// More dimensions than any framework has. Bounds the work for one tensor.
constexpr std::size_t kMaxDimensions = 64;
/// Longer than that is no deadline. Keeps a sum with the clock from overflowing.
constexpr double kMaxDeadlineNs = 365.0 * 24 * 3600 * 1e9;

/// Nothing: not a number.
std::optional<double> number(const Parameter& value) {
  return std::visit(
      [](const auto& held) -> std::optional<double> {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, bool> || std::is_same_v<Held, std::string>) {
          return std::nullopt;
        } else {
          return static_cast<double>(held);
        }
      },
      value);
}

double number_of(const std::string& name, const Parameter& value, double max) {
  const auto found = number(value);
  // Written so that NaN is refused.
  if (!found || !(*found >= 0 && *found <= max)) {
    refuse("parameter '" + name + "' must be a number of 0 or more");
  }
  return *found;
}

void apply_limit(Request& request, double ns) {
  if (ns > 0 && ns < kMaxDeadlineNs) {
    lower_deadline(request, request.headers_ns + static_cast<std::uint64_t>(std::max(ns, 1.0)));
  }
}

bool is_set(const Parameter& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return !text->empty();
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return number(value) != 0.0;
}

}  // namespace

void lower_deadline(Request& request, std::uint64_t deadline_ns) {
  if (deadline_ns == 0) return;
  if (request.deadline_ns == 0 || deadline_ns < request.deadline_ns) {
    request.deadline_ns = deadline_ns;
  }
}

void apply_parameter(Request& request, const std::string& name, const Parameter& value) {
  if (name == "priority") {
    constexpr auto kMax = std::numeric_limits<std::uint32_t>::max();
    request.priority = static_cast<std::uint32_t>(number_of(name, value, kMax));
  } else if (name == "timeout") {
    apply_limit(request, number_of(name, value, std::numeric_limits<double>::max()) * 1e3);
  } else if (name == "slo_ms") {
    apply_limit(request, number_of(name, value, std::numeric_limits<double>::max()) * 1e6);
  } else if (name.starts_with("sequence_") && is_set(value)) {
    refuse("parameter '" + name + "': sequences are not served", Code::kUnimplemented);
  }
}

void check_tensor_parameter(const std::string& tensor, const std::string& parameter) {
  if (parameter.starts_with("shared_memory_")) {
    refuse("tensor '" + tensor + "': shared memory is not served", Code::kUnimplemented);
  }
  if (parameter == "classification") {
    refuse("tensor '" + tensor + "': classification is not served", Code::kUnimplemented);
  }
}

engine::DataType data_type(const std::string& tensor, const std::string& name) {
  const auto type = engine::parse_data_type(name);
  if (!type) refuse("tensor '" + tensor + "': unknown datatype '" + name + "'");
  return *type;
}

void check_tensor(const engine::Tensor& tensor) {
  if (tensor.shape.size() > kMaxDimensions) {
    refuse("tensor '" + tensor.name + "': more than " + std::to_string(kMaxDimensions) +
           " dimensions");
  }
  const std::string fault = engine::check_data(tensor.type, tensor.shape, tensor.data);
  if (!fault.empty()) refuse("tensor '" + tensor.name + "': " + fault);
}

void check_request(const Request& request) {
  if (request.model.empty()) refuse("the request names no model");
  std::set<std::string_view> inputs;
  for (const engine::Tensor& input : request.inputs) {
    if (input.name.empty()) refuse("an input has no name");
    if (!inputs.insert(input.name).second) refuse("input '" + input.name + "' is given twice");
  }
  std::set<std::string_view> outputs;
  for (const std::string& output : request.outputs) {
    if (output.empty()) refuse("an output has no name");
    if (!outputs.insert(output).second) refuse("output '" + output + "' is asked for twice");
  }
}

ByteBudget::Share share_of(const ByteBudget& memory, std::uint64_t bytes) {
  ByteBudget::Share share(memory);
  if (!share.resize(bytes)) throw Refusal{memory_full()};
  return share;
}

void count_memory(Request& request, ByteBudget::Share share) {
  // The response repeats the id, so there is a second copy.
  if (!share.resize(request.storage_bytes + 2 * request.id.size())) throw Refusal{memory_full()};
  request.storage = counted(std::move(request.storage), std::move(share));
}

Echo echo_of(const Request& request) {
  return {request.model, request.version.empty() ? "1" : request.version, request.id};
}

}  // namespace sluice::server::api
