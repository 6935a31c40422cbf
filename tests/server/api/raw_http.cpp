#include "raw_http.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

namespace sluice::test {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

RawHttp::RawHttp(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // A server that does not answer fails the test instead of hanging it.
  const timeval limit{20, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("cannot connect to the server under test");
  }
}

bool RawHttp::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

void RawHttp::half_close() { shutdown(socket_.get(), SHUT_WR); }

void RawHttp::reset() {
  const linger at_once{1, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_.reset();
}

bool RawHttp::receive() {
  char bytes[65536];
  const auto got = recv(socket_.get(), bytes, sizeof(bytes), 0);
  if (got <= 0) return false;
  received_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

std::optional<RawHttp::Reply> RawHttp::reply() {
  std::size_t end = 0;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!receive()) return std::nullopt;
  }
  Reply reply;
  reply.status = std::stoi(received_.substr(received_.find(' ') + 1, 3));
  std::size_t line = received_.find("\r\n") + 2;
  while (line < end) {
    const std::size_t next = received_.find("\r\n", line);
    const std::size_t colon = received_.find(':', line);
    const std::size_t value = received_.find_first_not_of(' ', colon + 1);
    reply.headers[lower(received_.substr(line, colon - line))] =
        received_.substr(value, next - value);
    line = next + 2;
  }
  received_.erase(0, end + 4);
  // A 100 Continue has no length and no body.
  const auto length = reply.headers.find("content-length");
  const std::size_t size = length == reply.headers.end() ? 0 : std::stoul(length->second);
  while (received_.size() < size) {
    if (!receive()) return std::nullopt;
  }
  reply.body = received_.substr(0, size);
  received_.erase(0, size);
  return reply;
}

std::string RawHttp::rest() {
  while (receive()) continue;
  return std::move(received_);
}

bool RawHttp::closed(std::chrono::milliseconds limit) {
  pollfd waiting{socket_.get(), POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(limit.count())) <= 0) return false;
  return !receive() && received_.empty();
}

std::string http_request(const std::string& method, const std::string& target,
                         const std::string& body, const std::string& headers) {
  return method + " " + target +
         " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "\r\n" + body;
}

}  // namespace sluice::test
