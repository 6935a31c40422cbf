#include "shm/mapping.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "base/fd.hpp"
#include "base/node_service.hpp"
#include "shm/board_format.hpp"
#include "shm/lost_board.hpp"
#include "shm/messages.hpp"
#include "shm/node_memory.hpp"
#include "shm/session.hpp"

namespace sluice::shm {
namespace {

namespace ipc = boost::interprocess;

constexpr off_t kControllerByte = 0;
constexpr off_t kUserByte = 1;

bool lock_byte(int fd, off_t byte, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/// Reserves the pages of a new board. Without them, the first write to a page that a full /dev/shm
/// does not have would end the process by SIGBUS.
void reserve_pages(int fd, const std::string& name) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, sizeof(Board));
  } while (error == EINTR);
  if (error == 0) return;
  shm_unlink(name.c_str());
  throw BoardError(error == ENOSPC
                       ? "no space left in /dev/shm: the session's board needs " +
                             std::to_string(sizeof(Board) / 1024 + 1) +
                             " KiB; end programs or remove files there, or make it larger"
                       : "cannot make /dev/shm/" + name + ": " + std::strerror(error));
}

void refuse_foreign(int fd, const std::string& name) {
  struct stat found {};
  if (fstat(fd, &found) != 0) throw BoardError("cannot examine /dev/shm/" + name);
  if (found.st_uid != geteuid() || (found.st_mode & 077U) != 0) {
    throw BoardError("/dev/shm/" + name +
                     " belongs to another user or is open to others; not used. Remove it or "
                     "choose another --session");
  }
}

bool still_named(int fd, const std::string& name) {
  return base::still_named(fd, "/dev/shm/" + name);
}

/// What Boost maps from a descriptor.
class Descriptor {
 public:
  Descriptor(int fd, ipc::mode_t mode) : fd_(fd), mode_(mode) {}
  [[nodiscard]] ipc::mapping_handle_t get_mapping_handle() const { return {fd_, false}; }
  [[nodiscard]] ipc::mode_t get_mode() const { return mode_; }

 private:
  int fd_;
  ipc::mode_t mode_;
};

ipc::mapped_region map_board(int fd, ipc::mode_t mode) {
  return {Descriptor(fd, mode), mode, 0, sizeof(Board)};
}

/// The fault that makes the board unusable; empty if there is none.
std::string fault_of(int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0 || found.st_size < static_cast<off_t>(sizeof(Board))) {
    return size_fault(static_cast<std::uint64_t>(found.st_size));
  }
  const ipc::mapped_region region = map_board(fd, ipc::read_only);
  return format_fault(*static_cast<const Board*>(region.get_address()));
}

/// Describes the controller; empty if the holder of the lock is only removing the board.
std::string controller_of(int fd) {
  if (!fault_of(fd).empty()) return "a controller of another version";
  const ipc::mapped_region region = map_board(fd, ipc::read_only);
  const std::uint32_t pid = static_cast<const Board*>(region.get_address())->controller_pid.load();
  if (pid == 0 || (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return {};
  return "a controller, pid " + std::to_string(pid);
}

constexpr int kAnswerMs = 1000;

/// Empty if the name is taken. Whatever the umask, the board has mode 0600.
base::Fd make_named(const std::string& name) {
  base::Fd made(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (made) fchmod(made.get(), 0600);
  return made;
}

/// The board from the session's controller, for when it has lost its name. Opened again: a
/// descriptor that was sent shares the locks of its sender.
base::Fd ask_controller(std::string_view session, int flags) {
  const base::Fd connection(connect_patiently(socket_path(session).c_str(), kAnswerMs));
  if (!connection) return {};
  const RequestKind kind = flags == O_RDWR ? RequestKind::kBoard : RequestKind::kInspect;
  Reply reply;
  const base::Fd sent(ask_for_board(connection.get(), kind, reply, kAnswerMs));
  if (!sent) return {};
  return base::Fd(open(("/proc/self/fd/" + std::to_string(sent.get())).c_str(), flags | O_CLOEXEC));
}

[[noreturn]] void refuse_second(std::string_view session, const std::string& controller) {
  throw BoardError("session " + std::string(session) + " has " + controller +
                   "; stop it or choose another --session");
}

}  // namespace

struct BoardMapping::Mapped {
  base::Fd file;
  struct stat about {};  ///< Identity of `file`.
  ipc::mapped_region region;

  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { drop_file(); }

  void take(base::Fd opened, ipc::mode_t mode) {
    fstat(opened.get(), &about);
    region = map_board(opened.get(), mode);
    file = std::move(opened);
  }
  /// The program may have closed the descriptor, and another file may have its number.
  [[nodiscard]] bool has_file() const noexcept {
    struct stat now {};
    return fstat(file.get(), &now) == 0 && now.st_ino == about.st_ino && now.st_dev == about.st_dev;
  }
  void drop_file() noexcept {
    const bool ours = has_file();
    const int fd = file.release();
    if (ours) close(fd);
  }
};

BoardMapping::BoardMapping() noexcept : mapped_(std::make_unique<Mapped>()) {}
BoardMapping::BoardMapping(BoardMapping&&) noexcept = default;
BoardMapping& BoardMapping::operator=(BoardMapping&&) noexcept = default;
BoardMapping::~BoardMapping() = default;

Board& BoardMapping::board() const noexcept {
  return *static_cast<Board*>(mapped_->region.get_address());
}

BoardMapping BoardMapping::of_memory(base::Fd memory, uid_t owner, Access access) {
  std::string fault = memory_fault(memory.get(), owner);
  if (!fault.empty()) throw BoardError("the node's board " + fault + "; not used");
  BoardMapping mapping;
  const bool may_write = (fcntl(memory.get(), F_GETFL) & O_ACCMODE) == O_RDWR;
  const ipc::mode_t mode = access == Access::kUse && may_write ? ipc::read_write : ipc::read_only;
  try {
    mapping.mapped_->take(std::move(memory), mode);
  } catch (const ipc::interprocess_exception& error) {
    throw BoardError(std::string("cannot map the node's board: ") + error.what());
  }
  fault = format_fault(mapping.board());
  if (!fault.empty()) throw BoardError("the node's board " + fault + "; not used");
  return mapping;
}

/// The node service hands out its board, which has no name.
BoardMapping BoardMapping::of_node(Access access) {
  const std::string path = base::node_socket();
  const std::optional<uid_t> owner = base::trusted_node_owner(path);
  const base::Fd connection(connect_patiently(path.c_str(), kAnswerMs));
  if (base::find_node_service() == base::NodeService::kUntrusted || connection.get() == -EPERM) {
    throw BoardError("the node service " + base::not_trusted());
  }
  if (connection.get() == -EAGAIN) throw BoardError("the node service is too busy to answer");
  if (!owner || !connection) {
    throw NoBoard("the node service does not run (as root: systemctl start sluice-node)");
  }
  const RequestKind kind = access == Access::kUse ? RequestKind::kBoard : RequestKind::kInspect;
  Reply reply;
  base::Fd memory(ask_for_board(connection.get(), kind, reply, kAnswerMs));
  if (memory.get() == -EACCES) {
    throw BoardError(std::string("the node service refuses: ") + reply.text.data());
  }
  if (!memory) {
    throw BoardError(std::string("the node service does not answer: ") +
                     std::strerror(-memory.get()));
  }
  BoardMapping mapping = of_memory(std::move(memory), *owner, access);
  mapping.about_ = reply.text.data();
  return mapping;
}

BoardMapping BoardMapping::open(std::string_view session, Access access) {
  const base::StandardFiles taken;  // or a program's messages would go to the board
  BoardMapping mapping;
  mapping.name_ = board_name(session);
  const int flags = access == Access::kUse ? O_RDWR : O_RDONLY;
  // Another user may have put a pipe there, and opening it would wait for a writer.
  base::Fd file(shm_open(mapping.name_.c_str(), flags | O_NONBLOCK, 0));
  const int error = file ? 0 : errno;
  mapping.nameless_ = error == ENOENT;
  if (mapping.nameless_) file = ask_controller(session, flags);
  if (!file && error == ENOENT) {
    throw NoBoard("no board /dev/shm/" + mapping.name_ + ": the session has no controller");
  }
  if (!file) {
    throw BoardError("cannot open /dev/shm/" + mapping.name_ + ": " + std::strerror(error));
  }
  refuse_foreign(file.get(), mapping.name_);
  const std::string fault = fault_of(file.get());
  if (!fault.empty()) {
    throw BoardError("/dev/shm/" + mapping.name_ + " " + fault +
                     "; end the processes of that session, then remove it");
  }
  try {
    mapping.mapped_->take(std::move(file),
                          access == Access::kUse ? ipc::read_write : ipc::read_only);
  } catch (const ipc::interprocess_exception& failed) {
    throw BoardError("cannot map /dev/shm/" + mapping.name_ + ": " + failed.what());
  }
  return mapping;
}

bool BoardMapping::writable() const noexcept {
  return mapped_->region.get_mode() == ipc::read_write;
}

BoardMapping BoardMapping::attach(std::string_view session, Rights rights) {
  if (session == base::kNodeSession) {
    BoardMapping mapping = of_node(Access::kUse);
    if (mapping.writable() || rights == Rights::kAny) return mapping;
    throw BoardError("the site policy lets this user only read the node's board");
  }
  BoardMapping mapping = open(session, Access::kUse);
  const int fd = mapping.mapped_->file.get();
  const bool locked = lock_byte(fd, kUserByte, F_RDLCK);
  if (!locked || !(mapping.nameless_ || still_named(fd, mapping.name_))) {
    throw NoBoard("the board /dev/shm/" + mapping.name_ + " is being removed");
  }
  return mapping;
}

BoardMapping BoardMapping::inspect(std::string_view session) {
  if (session == base::kNodeSession) return of_node(Access::kInspect);
  return open(session, Access::kInspect);
}

namespace {

/// The board of this name that has lost it and is still in use. Empty if there is none. Throws
/// BoardError if it has a controller.
base::Fd take_lost(std::string_view session, const std::string& name) {
  base::Fd lost = find_lost(name, [](int fd) {
    if (!fault_of(fd).empty()) return false;
    if (!lock_byte(fd, kControllerByte, F_WRLCK) || !lock_byte(fd, kUserByte, F_WRLCK)) return true;
    lock_byte(fd, kUserByte, F_UNLCK);
    lock_byte(fd, kControllerByte, F_UNLCK);
    return false;
  });
  if (lost && !lock_byte(lost.get(), kControllerByte, F_WRLCK)) {
    const std::string controller = controller_of(lost.get());
    refuse_second(session, controller.empty() ? "a controller" : controller);
  }
  return lost;
}

}  // namespace

BoardMapping::Adoption BoardMapping::adopt_or_create(std::string_view session) {
  using namespace std::chrono_literals;
  const base::StandardFiles taken;
  Adoption result;
  const std::string name = board_name(session);
  result.mapping.name_ = name;
  // Several rounds: the last user of a board may remove it meanwhile.
  for (int round = 0; round < 50; ++round, std::this_thread::sleep_for(10ms)) {
    base::Fd file(shm_open(name.c_str(), O_RDWR, 0));
    if (!file && errno == ENOENT) {
      if (base::Fd lost = take_lost(session, name)) {
        result.mapping.mapped_->take(std::move(lost), ipc::read_write);
        result.adopted = true;
        return result;
      }
      file = make_named(name);
      if (!file && errno == EEXIST) continue;
    }
    if (!file) {
      throw BoardError("cannot open /dev/shm/" + name + ": " + std::strerror(errno) +
                       "; if another user owns it, choose another --session");
    }
    const int fd = file.get();
    refuse_foreign(fd, name);
    if (!lock_byte(fd, kControllerByte, F_WRLCK)) {
      const std::string controller = controller_of(fd);
      if (controller.empty()) continue;
      refuse_second(session, controller);
    }
    if (!still_named(fd, name)) continue;
    const bool unused = lock_byte(fd, kUserByte, F_WRLCK);
    const std::string fault = fault_of(fd);
    if (!unused && !fault.empty()) {
      throw BoardError("/dev/shm/" + name + " " + fault +
                       "; processes still use it: end them first");
    }
    struct stat about {};
    if (unused && fstat(fd, &about) == 0 && about.st_size != 0) {
      shm_unlink(name.c_str());  // stale: no process uses it
      continue;
    }
    if (unused) reserve_pages(fd, name);
    result.mapping.mapped_->take(std::move(file), ipc::read_write);
    result.adopted = !unused;
    if (unused) initialise(*new (result.mapping.mapped_->region.get_address()) Board{});
    lock_byte(fd, kUserByte, F_UNLCK);
    return result;
  }
  throw BoardError("/dev/shm/" + name + " keeps changing; try again");
}

bool has_controller(std::string_view session) noexcept {
  const base::Fd file(
      ::open(("/dev/shm/" + board_name(session)).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kControllerByte;
  lock.l_len = 1;
  return file && fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

BoardMapping::Name BoardMapping::name() const noexcept {
  struct stat named {};
  std::array<char, 64> path{};  // of the watcher, which allocates nothing
  std::snprintf(path.data(), path.size(), "/dev/shm/%s", name_.c_str());
  if (stat(path.data(), &named) != 0) return Name::kGone;
  const struct stat& about = mapped_->about;
  return named.st_ino == about.st_ino && named.st_dev == about.st_dev ? Name::kOurs
                                                                      : Name::kAnothers;
}

int BoardMapping::descriptor() const noexcept { return mapped_->file.get(); }

bool BoardMapping::remove_if_unused(const std::string& socket) noexcept {
  constexpr int kTries = 20;
  const int fd = mapped_->file.get();
  // The program may have closed it, and may have locks of its own on what has the number now.
  if (name_.empty() || !mapped_->has_file() || name() == Name::kAnothers) return false;
  // Give up our own use first, and retry: otherwise two last users that leave at the same time
  // would each see only the other.
  lock_byte(fd, kUserByte, F_UNLCK);
  for (int i = 0; i < kTries; ++i, std::this_thread::yield()) {
    if (!lock_byte(fd, kControllerByte, F_WRLCK)) continue;
    const bool unused = lock_byte(fd, kUserByte, F_WRLCK) && name() != Name::kAnothers;
    if (unused) {
      // The name goes last: after that a new controller may create a board and a socket.
      if (!socket.empty()) unlink(socket.c_str());
      if (name() == Name::kOurs) shm_unlink(name_.c_str());
    }
    if (!unused) lock_byte(fd, kControllerByte, F_UNLCK);  // a new controller may want it
    return unused;
  }
  return false;
}

/// Of the mapping, not of the descriptor: the program may have closed that, and another file may
/// have its number. An old size of 0 leaves the mapping and makes a second one of the same pages.
void* BoardMapping::another_view() const noexcept {
  void* view = mremap(mapped_->region.get_address(), 0, mapped_->region.get_size(), MREMAP_MAYMOVE);
  if (view == MAP_FAILED && mapped_->has_file()) {  // valgrind refuses such a mremap
    const int rights = writable() ? PROT_READ | PROT_WRITE : PROT_READ;
    view = mmap(nullptr, sizeof(Board), rights, MAP_SHARED, mapped_->file.get(), 0);
  }
  if (view == MAP_FAILED) return nullptr;
  madvise(view, sizeof(Board), MADV_DONTFORK);
  return view;
}

void BoardMapping::abandon_in_child() noexcept {
  mapped_->drop_file();
  // The mapping keeps the file description alive, and with it the lock. The child gets private
  // memory at the same address, so that pointers into the board stay harmless.
  static_cast<void>(mmap(mapped_->region.get_address(), mapped_->region.get_size(),
                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

}  // namespace sluice::shm
