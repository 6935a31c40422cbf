#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::controller {

/// Where metrics are served. Loopback only: who runs what is nobody else's business.
struct MetricsAddress {
  std::string host;  ///< An IP address.
  std::uint16_t port = 0;
};

/// 127.x.y.z:PORT, localhost:PORT or [::1]:PORT. Nothing for anything else.
[[nodiscard]] std::optional<MetricsAddress> parse_metrics_address(std::string_view text);

}  // namespace sluice::controller
