#include "controller/node_board.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/node_service.hpp"
#include "controller/node_record.hpp"
#include "controller/repair.hpp"
#include "shm/node_memory.hpp"

namespace sluice::controller {
namespace {

constexpr mode_t kFolderMode = 0755;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// Whoever can rename a folder on the way can lead the service elsewhere while it starts, and root
/// would write there. A sticky folder as /tmp is safe: only the owner can rename its entries.
void refuse_replaceable(std::filesystem::path folder) {
  for (;; folder = folder.parent_path()) {
    struct stat found {};
    if (lstat(folder.c_str(), &found) != 0) fail("cannot examine " + folder.string());
    const bool ours = found.st_uid == 0 || found.st_uid == geteuid();
    const bool open = (found.st_mode & (S_IWGRP | S_IWOTH)) != 0 &&
                      (found.st_mode & S_ISVTX) == 0 && !S_ISLNK(found.st_mode);
    if (!ours || open) {
      throw std::runtime_error("another user can replace " + folder.string() +
                               ", which the folder of the service is in; choose another "
                               "SLUICE_NODE_DIR");
    }
    if (folder == folder.root_path()) return;
  }
}

void make_folder(const std::string& path) {
  if (path.empty()) {
    throw std::runtime_error("SLUICE_NODE_DIR is not an absolute path; unset it");
  }
  // The path may end with a slash.
  const auto parent = std::filesystem::path(path + "/").parent_path().parent_path();
  refuse_replaceable(parent);
  // A link on the way is safe itself, and leads elsewhere.
  std::error_code missing;
  const auto real = std::filesystem::canonical(parent, missing);
  if (!missing) refuse_replaceable(real);
  if (mkdir(path.c_str(), kFolderMode) == 0) {
    chmod(path.c_str(), kFolderMode);  // whatever the umask
  } else if (errno != EEXIST) {
    fail("cannot make the folder " + path);
  }
  // The rule of the clients, with one more condition: the owner is the user of the service.
  const auto owner = base::trusted_node_owner(path + "/");
  if (!owner || *owner != geteuid()) {
    throw std::runtime_error(path + " is not a folder that only this user can write to; remove it");
  }
}

/// The pid that the other service has written into the lock file.
std::string read_pid(int lock) {
  std::array<char, 16> text{};
  const ssize_t size = pread(lock, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(size > 0 ? size : 0)};
}

shm::BoardMapping map_for_use(int memory) {
  return shm::BoardMapping::of_memory(base::Fd(fcntl(memory, F_DUPFD_CLOEXEC, 3)), geteuid(),
                                      shm::BoardMapping::Access::kUse);
}

/// The board of the service before, if a process has it open and a program runs on it. Empty
/// otherwise.
base::Fd find_board_in_use(const std::string& record_file) {
  const auto record = read_record(record_file);
  if (!record) return {};
  int unseen = 0;
  base::Fd memory = find_memory(*record, unseen);
  if (!memory) {
    if (unseen != 0) {
      spdlog::warn(
          "{} processes of other users cannot be examined: if one of them has the earlier board, "
          "it does not share priorities with new programs (the service needs CAP_SYS_PTRACE)",
          unseen);
    }
    return {};
  }
  try {
    const shm::BoardMapping mapping = map_for_use(memory.get());
    if (mapping.board().board_id.load() == record->board_id) {
      // The service manager has the board open too. Nobody needs what dead programs left on it.
      return any_process_lives(mapping.board()) ? std::move(memory) : base::Fd();
    }
    spdlog::warn("an open file has the identity of the board and is another one; not used");
  } catch (const shm::BoardError& error) {
    spdlog::warn("{}: its programs go on among themselves, and new ones get a new board",
                 error.what());
  }
  return {};
}

/// Sends `state`, with a descriptor if it is not -1. False if the service manager does not get it.
bool notify(const std::string& path, const std::string& state, int descriptor) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path)) return false;
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  if (path.front() == '@') address.sun_path[0] = '\0';
  const base::Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  iovec part{const_cast<char*>(state.data()), state.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(state.size());
}

/// Gives the service manager a copy of the board's descriptor to keep while the service restarts,
/// in place of the one before: FDSTORE of sd_notify(3). The next service finds the board in it as
/// in the open files of any process. Does nothing without a service manager.
void keep_for_next_run(int memory) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (*path != '/' && *path != '@')) return;
  const bool kept = notify(path, "FDSTOREREMOVE=1\nFDNAME=board", -1) &&
                    notify(path, "FDSTORE=1\nFDNAME=board", memory);
  if (!kept) spdlog::warn("the service manager does not keep the board: {}", std::strerror(errno));
}

}  // namespace

NodeFolder::NodeFolder(std::string path) : path_(std::move(path)) {
  make_folder(path_);
  // Of mode 0600: whoever can open a file can lock it.
  const std::string file = path_ + "/lock";
  lock_ = base::Fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_) fail("cannot open " + file);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail("cannot lock " + file);
    throw std::runtime_error("a node service runs already, pid " + read_pid(lock_.get()));
  }
  // Only for a message. A full file system must not keep the service from its programs.
  const std::string pid = std::to_string(getpid());
  if (ftruncate(lock_.get(), 0) != 0 ||
      pwrite(lock_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    spdlog::warn("cannot write {}: {}", file, std::strerror(errno));
  }
}

std::unique_ptr<NodeBoard> NodeBoard::take(NodeFolder folder, std::uint64_t max_hold_ns) {
  base::Fd memory = find_board_in_use(folder.record());
  const bool adopted = static_cast<bool>(memory);
  if (!adopted) memory = shm::make_node_memory();
  return std::unique_ptr<NodeBoard>(
      new NodeBoard(std::move(folder), std::move(memory), adopted, max_hold_ns));
}

NodeBoard::NodeBoard(NodeFolder folder, base::Fd memory, bool adopted, std::uint64_t max_hold_ns)
    : OwnedBoard(map_for_use(memory.get()), adopted, max_hold_ns),
      folder_(std::move(folder)),
      memory_(std::move(memory)),
      for_reading_(shm::read_only(memory_.get())) {
  if (!for_reading_) fail("cannot open the node's board for reading");
  const NodeRecord record = record_of(memory_.get(), board().board_id.load());
  // An adopted board has a record. A full file system does not keep the service from it.
  if (read_record(folder_.record()) != record) write_record(folder_.record(), record);
  keep_for_next_run(memory_.get());
}

}  // namespace sluice::controller
