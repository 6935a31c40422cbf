#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

/// Content-Encoding of HTTP: gzip and deflate.
namespace sluice::server::api {

enum class Encoding { kIdentity, kGzip, kDeflate };

/// Of a Content-Encoding header, in upper or lower case. Throws Refusal with kUnimplemented for
/// another encoding.
[[nodiscard]] Encoding content_encoding(std::string_view header);
/// What an Accept-Encoding header prefers by its weights (RFC 9110, 12.5.3), gzip if both are
/// equal; kIdentity if it takes neither.
[[nodiscard]] Encoding accepted_encoding(std::string_view header);
/// The name in a header.
[[nodiscard]] std::string_view to_string(Encoding encoding);

/// Nothing if the data has more than max_bytes when inflated. Throws Refusal if it is damaged, or
/// if something follows that is no member of a gzip file.
[[nodiscard]] std::optional<std::string> inflated_within(std::string_view data,
                                                         std::size_t max_bytes);
/// The same, but data that is too large is refused, too.
[[nodiscard]] std::string inflate(std::string_view data, std::size_t max_bytes);
[[nodiscard]] std::string deflate(std::string_view data, Encoding encoding);

}  // namespace sluice::server::api
