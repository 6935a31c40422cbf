#include "controller/metrics_address.hpp"

#include <arpa/inet.h>
#include <sys/un.h>

#include <charconv>

namespace sluice::controller {

std::optional<MetricsAddress> parse_metrics_address(std::string_view text) {
  constexpr std::uint32_t kLoopbackNet = 127;
  constexpr std::string_view kUnix = "unix:";
  MetricsAddress address;
  if (text.starts_with(kUnix)) {
    address.path = text.substr(kUnix.size());
    const bool usable = address.path.starts_with('/') && !address.path.ends_with('/') &&
                        address.path.size() < sizeof(sockaddr_un::sun_path);
    return usable ? std::optional(address) : std::nullopt;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  address.host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc{} || end != port.data() + port.size()) return std::nullopt;
  if (address.host == "localhost") address.host = "127.0.0.1";
  if (address.host == "[::1]") {
    address.host = "::1";
    return address;
  }
  in_addr parsed{};
  if (inet_pton(AF_INET, address.host.c_str(), &parsed) != 1) return std::nullopt;
  if (ntohl(parsed.s_addr) >> 24U != kLoopbackNet) return std::nullopt;
  return address;
}

}  // namespace sluice::controller
