#pragma once
#include <cstdint>
#include <string>
#include <variant>

#include "server/service/byte_budget.hpp"
#include "server/service/service.hpp"

/// The rules for a request that need no model. Both protocols obey them before Service::infer().
/// All functions throw Refusal.
namespace sluice::server::api {

using Parameter = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;

/// Applies a parameter of the request: priority, timeout (us) and slo_ms, which count from
/// headers_ns. Refuses the parameters of extensions that are not served; ignores unknown ones.
void apply_parameter(Request& request, const std::string& name, const Parameter& value);

/// Lowers the deadline of the request; 0: no deadline.
void lower_deadline(Request& request, std::uint64_t deadline_ns);

/// Refuses a parameter of an input or an output that asks for what is not served: shared memory and
/// classification.
void check_tensor_parameter(const std::string& tensor, const std::string& parameter);

/// The data type of a tensor.
[[nodiscard]] engine::DataType data_type(const std::string& tensor, const std::string& name);

/// Checks the number of bytes against type and shape, and the lengths inside BYTES.
void check_tensor(const engine::Tensor& tensor);

/// Checks the request as a whole: names that are missing or given twice.
void check_request(const Request& request);

/// A share of the memory for `bytes`.
[[nodiscard]] ByteBudget::Share share_of(const ByteBudget& memory, std::uint64_t bytes);

/// Makes `share` as large as the request, and Request::storage its keeper.
void count_memory(Request& request, ByteBudget::Share share);

/// The parts of a request that its response repeats.
struct Echo {
  std::string model;
  std::string version;  ///< Never empty.
  std::string id;
};

[[nodiscard]] Echo echo_of(const Request& request);
/// The version that the response names.
[[nodiscard]] inline const std::string& version_of(const Echo& echo, const Response& response) {
  return response.version.empty() ? echo.version : response.version;
}

}  // namespace sluice::server::api
