#include "server/api/http_headers.hpp"

#include <algorithm>
#include <cctype>

#include "base/trimmed.hpp"
#include "server/api/http_call.hpp"

namespace sluice::server::api {

std::vector<std::string_view> list_items(std::string_view list, char separator) {
  std::vector<std::string_view> items;
  while (!list.empty()) {
    const auto end = list.find(separator);
    const auto item = base::trimmed(list.substr(0, end));
    if (!item.empty()) items.push_back(item);
    list = end == std::string_view::npos ? "" : list.substr(end + 1);
  }
  return items;
}

bool is_word(std::string_view text, std::string_view word) {
  return std::ranges::equal(text, word, [](unsigned char one, char other) {
    return std::tolower(one) == static_cast<unsigned char>(other);
  });
}

void check_host(unsigned version, const std::vector<std::string>& hosts) {
  // A proxy and the server could take two hosts for different ones.
  if (hosts.size() > 1) throw error_reply(400, "the request has more than one Host");
  if (hosts.empty()) {
    if (version >= kHttp11) throw error_reply(400, "the request has no Host");
    return;
  }
  if (hosts.front().find_first_of(" \t,/\\?#@") != std::string::npos) {
    throw error_reply(400, "the Host is no host and port");
  }
}

void check_transfer_encoding(unsigned version, std::string_view encoding) {
  const auto codings = list_items(encoding, ',');
  if (codings.empty()) return;
  // A proxy of HTTP/1.0 passes the header on without understanding it.
  if (version < kHttp11) throw error_reply(400, "Transfer-Encoding is not of HTTP/1.0");
  const auto is_chunked = [](std::string_view coding) { return is_word(coding, "chunked"); };
  if (std::ranges::count_if(codings, is_chunked) > 1) {
    throw error_reply(400, "Transfer-Encoding: chunked is given twice");
  }
  if (codings.size() == 1 && is_chunked(codings.front())) return;
  if (std::ranges::any_of(codings, is_chunked) && !is_chunked(codings.back())) {
    throw error_reply(400, "Transfer-Encoding: chunked must be the last");
  }
  throw error_reply(501, "Transfer-Encoding: only chunked is understood");
}

}  // namespace sluice::server::api
