#include "server/workload/client.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/nearest.hpp"

namespace sluice::server::workload {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kInternal:
      break;
  }
  return "INTERNAL";
}

std::string no_server(const ClientOptions& options, const std::string& why) {
  return fmt::format(
      "no server at {}:{} ({}); start one with `sluice serve`, or give --host and -p", options.host,
      options.port, why);
}

std::string no_model(const std::string& model, const std::vector<std::string>& known) {
  std::string line = "the server has no model '" + model + "'" + base::did_you_mean(model, known);
  if (known.empty()) return line;
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  return base::with_remark(line, "it has " + names);
}

InputSpec input_spec(const std::string& model, const std::string& name, const std::string& type,
                     std::vector<std::int64_t> shape) {
  const auto parsed = engine::parse_data_type(type);
  if (!parsed) {
    throw base::RunError("model '" + model + "', input '" + name + "': unknown type '" + type +
                         "'");
  }
  return {name, *parsed, std::move(shape)};
}

}  // namespace sluice::server::workload
