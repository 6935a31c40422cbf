#include "shm/no_controller.hpp"

#include <dirent.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/node_service.hpp"
#include "base/session.hpp"
#include "shm/session.hpp"

namespace sluice::shm {
namespace {

constexpr std::string_view kBoardPrefix = "sluice.";

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { closedir(folder); }
};

/// The uid of another user whose board for a session of this name is in /dev/shm; empty if there is
/// none. Only the name is known: it need not be that user's.
std::string other_user_with(std::string_view session) {
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/dev/shm"));
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kBoardPrefix)) continue;
    uid_t uid = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, failed] = std::from_chars(name.data() + kBoardPrefix.size(), end, uid);
    if (failed != std::errc{} || rest == end || uid == base::session_uid()) continue;
    if (std::string_view(rest + 1, end) == session) return std::to_string(uid);
  }
  return {};
}

std::string why_nobody_listens(std::string_view session) {
  if (session == base::kNodeSession) {
    return "the node service does not run (as root: systemctl start sluice-node)";
  }
  if (base::in_user_namespace()) {
    return "no controller of this user; in a user namespace, start one on the host first, as the "
           "user that runs this program there";
  }
  if (const std::string other = other_user_with(session); !other.empty()) {
    return "no controller of uid " + std::to_string(base::session_uid()) + "; uid " + other +
           " has one: run sluice exec after the change of user, or the node service (sluice node)";
  }
  return "no controller (start one: sluice controller)";
}

}  // namespace

std::string why_no_controller(int error, std::string_view session) {
  const bool node = session == base::kNodeSession;
  const std::string who = node ? "the node service" : "the controller";
  switch (error) {
    case ENOENT:
    case ECONNREFUSED:
      return why_nobody_listens(session);
    case EAGAIN:
      return who + " is too busy to answer";
    case ETIMEDOUT:
      return who + " does not answer";
    case EPIPE:
    case ECONNRESET:
      return who + " hung up";
    case EMFILE:
      return "this process has no file descriptor left (ulimit -n)";
    case ENFILE:
      return "this machine has no file descriptor left (sysctl fs.file-max)";
    case ENOMEM:
    case ENOBUFS:
      return "there is no memory for it";
    case ENAMETOOLONG:
      return "the path of the socket is too long: " + socket_path(session);
    case EACCES:
      return "this user may not use the socket " + socket_path(session);
    case EPERM:
      return node ? who + " " + base::not_trusted()
                  : "another user answers at the socket " + socket_path(session);
    default:
      return who + " cannot be reached: " + std::strerror(error);
  }
}

}  // namespace sluice::shm
