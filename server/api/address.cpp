#include "server/api/address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace sluice::server::api {
namespace {

constexpr std::string_view kPrefix = kUnixPrefix;

[[noreturn]] void fail(const std::string& text, const std::string& why) {
  throw base::RunError(fmt::format("cannot listen on {}: {}", text, why));
}

bool answers(const sockaddr_un& address) {
  const base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

std::string unix_path(const std::string& text, const std::string& name) {
  const std::string folder = text.substr(kPrefix.size());
  if (folder.empty()) fail(text, "expected unix:FOLDER");
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) fail(text, std::strerror(errno));
  const std::string path = folder + "/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) fail(text, "the path is too long for a socket");
  path.copy(address.sun_path, path.size());
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return path;
  if (!S_ISSOCK(about.st_mode)) fail(text, path + " exists and is not a socket");
  if (answers(address)) fail(text, path + " is in use by another server");
  // A server that was killed has left it.
  unlink(path.c_str());
  return path;
}

std::string ip_of(const std::string& text) {
  const bool brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  const std::string host = brackets ? text.substr(1, text.size() - 2) : text;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  // localhost is ::1 first on some machines, and clients then use 127.0.0.1.
  hints.ai_family = AF_INET;
  addrinfo* list = nullptr;
  int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  hints.ai_family = AF_UNSPEC;
  if (error != 0) error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) fail(text, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, freeaddrinfo);
  std::array<char, NI_MAXHOST> ip{};
  if (getnameinfo(list->ai_addr, list->ai_addrlen, ip.data(), ip.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    fail(text, "no IP address");
  }
  return ip.data();
}

}  // namespace

std::string resolve_address(const std::string& text, const std::string& name) {
  if (text.starts_with(kPrefix)) return std::string(kPrefix) + unix_path(text, name);
  return ip_of(text);
}

bool is_unix(const std::string& address) { return address.starts_with(kPrefix); }

std::string endpoint_text(const std::string& address, std::uint16_t port) {
  if (is_unix(address)) return address;
  const bool ipv6 = address.find(':') != std::string::npos;
  return fmt::format("{}:{}", ipv6 ? "[" + address + "]" : address, port);
}

SocketMode::SocketMode(const std::string& address) : unix_(is_unix(address)) {
  if (unix_) before_ = umask(S_IXUSR | S_IXGRP | S_IRWXO);
}

SocketMode::~SocketMode() {
  if (unix_) umask(before_);
}

}  // namespace sluice::server::api
