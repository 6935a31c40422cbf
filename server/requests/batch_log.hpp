#pragma once
#include <cstdint>
#include <string>

#include "server/requests/execution.hpp"

namespace sluice::server {

/// The published log line of a batch: what each part of it took. output_ns: taking and sending its
/// outputs. now_ns: the end.
[[nodiscard]] std::string batch_line(const Execution& execution, std::uint64_t output_ns,
                                     std::uint64_t now_ns);

}  // namespace sluice::server
