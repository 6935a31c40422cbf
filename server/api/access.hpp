#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/service/service.hpp"

/// Who may do what at one address of the server.
namespace sluice::server::api {

/// What a call needs.
enum class Right : std::uint8_t {
  kProbe,    ///< Is the server alive, is it ready? Needs nothing: a probe has no token.
  kUse,      ///< Inference, descriptions, metrics.
  kControl,  ///< Changes the server for all: loads, unloads, scheduler, training, end.
};

struct Access {
  /// Whether control calls are taken here.
  bool control = true;
  /// A call but a probe needs one of them, as `Authorization: Bearer TOKEN`. None: no call does.
  std::vector<std::string> tokens;
};

/// authorization: the header of the call; may be empty.
[[nodiscard]] Status check_access(const Access& access, Right right,
                                  std::string_view authorization);

/// The tokens of a file, one a line; `#` begins a comment. Throws base::UsageError if the file
/// cannot be read, has no token, or may be read by others than its owner and group.
[[nodiscard]] std::vector<std::string> read_tokens(const std::string& file);

/// The certificate of an address. All in PEM form.
struct Tls {
  std::string certificate;  ///< With its chain. Empty: no TLS.
  std::string key;
  std::string
      client_ca;  ///< A client needs a certificate that one of these has signed. May be empty.

  [[nodiscard]] bool on() const { return !certificate.empty(); }
};

/// Reads the files. client_ca: may be empty. Throws base::UsageError if one is unreadable, the
/// certificate is not valid now, the key is not its key, or others may read the key.
[[nodiscard]] Tls read_tls(const std::string& certificate, const std::string& key,
                           const std::string& client_ca);

}  // namespace sluice::server::api
