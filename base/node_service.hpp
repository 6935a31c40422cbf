#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

/// Where the node service is, and whether this process may trust it. The node service has one board
/// for all users of the machine: the session `node`.
namespace sluice::base {

inline constexpr std::string_view kNodeSession = "node";

/// The folder of the node service: SLUICE_NODE_DIR, else /run/sluice. Empty if the variable is
/// empty or is no absolute path: then this process knows no node service.
[[nodiscard]] std::string node_folder();

/// `<node_folder()>/node.sock`. Empty without a folder.
[[nodiscard]] std::string node_socket();

/// Whether `path` is that of a node's socket. A session of a user has another: `node` is reserved.
[[nodiscard]] bool is_node_socket(std::string_view path) noexcept;

/// The only user who may answer on a node's socket: the owner of its folder. Nothing if the folder
/// belongs neither to root nor to this process's user, or if another user may write to it. Does not
/// allocate.
[[nodiscard]] std::optional<uid_t> trusted_node_owner(std::string_view socket_path) noexcept;

enum class NodeService {
  kAbsent,     ///< No socket.
  kUntrusted,  ///< A socket, in a folder that this process does not trust.
  kPresent,    ///< A socket in a trusted folder. Perhaps nobody listens.
};

[[nodiscard]] NodeService find_node_service();

/// Why this process does not use the service, and what to do, for messages: "in /run/sluice is not
/// trusted: ...".
[[nodiscard]] std::string not_trusted();

/// The session of a process that was given none: `node` if the node service is present, else
/// `default`. The only place of this decision.
[[nodiscard]] std::string default_session();

}  // namespace sluice::base
