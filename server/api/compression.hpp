#pragma once
#include <string>
#include <string_view>

/// Content-Encoding of HTTP: gzip and deflate.
namespace sluice::server::api {

enum class Encoding { kIdentity, kGzip, kDeflate };

/// Of a Content-Encoding header. Throws Refusal with kUnimplemented for another encoding.
[[nodiscard]] Encoding content_encoding(std::string_view header);
/// What an Accept-Encoding header allows, gzip first; kIdentity if neither.
[[nodiscard]] Encoding accepted_encoding(std::string_view header);
/// The name in a header.
[[nodiscard]] std::string_view to_string(Encoding encoding);

/// Throws Refusal if the data is damaged, or has more than max_bytes when inflated.
[[nodiscard]] std::string inflate(std::string_view data, std::size_t max_bytes);
[[nodiscard]] std::string deflate(std::string_view data, Encoding encoding);

}  // namespace sluice::server::api
