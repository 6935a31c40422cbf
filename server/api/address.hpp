#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

/// Where a protocol listens.
namespace sluice::server::api {

/// `unix:FOLDER` means a socket in that folder, `unix:FOLDER/NAME`.
inline constexpr const char* kUnixPrefix = "unix:";

/// An address as users write it: an IP address, also in brackets, the name of a host, or
/// `unix:FOLDER`. Returns the IP address, or the path of the socket `name` behind `unix:`. Makes
/// the folder (mode 0700) if it does not exist. Throws base::RunError, also if another server has
/// the socket.
[[nodiscard]] std::string resolve_address(const std::string& text, const std::string& name);

/// address: of resolve_address().
[[nodiscard]] bool is_unix(const std::string& address);

/// The address as messages and URLs have it: `127.0.0.1:80`, `[::1]:80` or `unix:/path`.
[[nodiscard]] std::string endpoint_text(const std::string& address, std::uint16_t port);

/// While it lives, a unix socket is made with mode 0660: its group may connect, if the folder lets
/// it in. Of the whole process, so other threads should make no files. Nothing for other addresses.
class SocketMode {
 public:
  explicit SocketMode(const std::string& address);
  SocketMode(const SocketMode&) = delete;
  SocketMode& operator=(const SocketMode&) = delete;
  ~SocketMode();

 private:
  const bool unix_;
  mode_t before_ = 0;
};

}  // namespace sluice::server::api
