#include "base/node_service.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

#include "base/session.hpp"

namespace sluice::base {
namespace {

constexpr const char* kFolder = "/run/sluice";
constexpr std::string_view kSocketName = "/node.sock";

}  // namespace

std::string node_folder() {
  const char* const chosen = std::getenv("SLUICE_NODE_DIR");
  if (chosen == nullptr) return kFolder;
  return *chosen == '/' ? chosen : std::string();
}

std::string node_socket() {
  const std::string folder = node_folder();
  return folder.empty() ? folder : folder + std::string(kSocketName);
}

bool is_node_socket(std::string_view path) noexcept { return path.ends_with(kSocketName); }

std::optional<uid_t> trusted_node_owner(std::string_view socket_path) noexcept {
  const std::string_view folder = socket_path.substr(0, socket_path.rfind('/'));
  std::array<char, PATH_MAX> path{};
  if (folder.empty() || folder.size() >= path.size()) return std::nullopt;
  folder.copy(path.data(), folder.size());
  struct stat found {};
  if (lstat(path.data(), &found) != 0 || !S_ISDIR(found.st_mode)) return std::nullopt;
  const bool owned = found.st_uid == 0 || found.st_uid == geteuid();
  if (!owned || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) return std::nullopt;
  return found.st_uid;
}

NodeService find_node_service() {
  const std::string path = node_socket();
  struct stat found {};
  if (path.empty() || lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) {
    return NodeService::kAbsent;
  }
  return trusted_node_owner(path) ? NodeService::kPresent : NodeService::kUntrusted;
}

std::string not_trusted() {
  const std::string folder = node_folder();
  return "in " + folder +
         " is not trusted: the folder must belong to root, who must run the service, and nobody "
         "else may write to it (as root: chown root " +
         folder + "; chmod 755 " + folder +
         "). In a user namespace, root of the host is another user: choose another session";
}

std::string default_session() {
  const bool has_node = find_node_service() == NodeService::kPresent;
  return std::string(has_node ? kNodeSession : kDefaultSession);
}

}  // namespace sluice::base
