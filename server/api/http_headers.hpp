#pragma once
#include <string>
#include <string_view>
#include <vector>

/// What RFC 9110 and 9112 say about the headers of a request, without a library of HTTP.
namespace sluice::server::api {

/// The items of a list, without the blanks around them. Empty items are left out.
[[nodiscard]] std::vector<std::string_view> list_items(std::string_view list, char separator);

/// Whether the text is this word, in upper or lower case. word: in lower case.
[[nodiscard]] bool is_word(std::string_view text, std::string_view word);

constexpr unsigned kHttp11 = 11;

/// Refuses a request of HTTP/1.1 that does not have exactly one Host, and each Host that is none.
/// Throws HttpReply.
void check_host(unsigned version, const std::vector<std::string>& hosts);

/// Refuses a body whose end cannot be found: with another Transfer-Encoding than chunked, which may
/// be empty. Throws HttpReply.
void check_transfer_encoding(unsigned version, std::string_view encoding);

}  // namespace sluice::server::api
