#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::controller {

/// Where metrics are served: a TCP port, or a unix socket. Loopback only: who runs what is nobody
/// else's business.
struct MetricsAddress {
  std::string host;  ///< An IP address.
  std::uint16_t port = 0;
  std::string path;  ///< Of a unix socket; empty for a TCP port.

  [[nodiscard]] bool is_unix() const noexcept { return !path.empty(); }
};

/// 127.x.y.z:PORT, localhost:PORT, [::1]:PORT or unix:/PATH. Nothing for anything else.
[[nodiscard]] std::optional<MetricsAddress> parse_metrics_address(std::string_view text);

}  // namespace sluice::controller
