#include "shm/mapping.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "base/fd.hpp"
#include "base/node_service.hpp"
#include "shm/board_format.hpp"
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

int descriptor(const ipc::shared_memory_object& object) {
  return object.get_mapping_handle().handle;
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

/// The fault that makes the board unusable; empty if there is none.
std::string fault_of(const ipc::shared_memory_object& object) {
  ipc::offset_t size = 0;
  if (!object.get_size(size) || size < static_cast<ipc::offset_t>(sizeof(Board))) {
    return size_fault(static_cast<std::uint64_t>(size));
  }
  const ipc::mapped_region region(object, ipc::read_only);
  return format_fault(*static_cast<const Board*>(region.get_address()));
}

/// Describes the controller; empty if the holder of the lock is only removing the board.
std::string controller_of(const ipc::shared_memory_object& object) {
  if (!fault_of(object).empty()) return "a controller of another version";
  const ipc::mapped_region region(object, ipc::read_only);
  const std::uint32_t pid = static_cast<const Board*>(region.get_address())->controller_pid.load();
  if (pid == 0 || (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return {};
  return "a controller, pid " + std::to_string(pid);
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

constexpr int kAnswerMs = 1000;

}  // namespace

struct BoardMapping::Mapped {
  ipc::shared_memory_object object;  ///< Empty for the node's board.
  base::Fd memory;                   ///< Of the node's board.
  struct stat about {};              ///< Identity of `memory`.
  ipc::mapped_region region;

  /// The program may have closed the descriptor, and another file may have its number.
  void drop_memory() noexcept {
    struct stat now {};
    const bool ours =
        fstat(memory.get(), &now) == 0 && now.st_ino == about.st_ino && now.st_dev == about.st_dev;
    const int fd = memory.release();
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
    mapping.mapped_->region =
        ipc::mapped_region(Descriptor(memory.get(), mode), mode, 0, sizeof(Board));
  } catch (const ipc::interprocess_exception& error) {
    throw BoardError(std::string("cannot map the node's board: ") + error.what());
  }
  fault = format_fault(mapping.board());
  if (!fault.empty()) throw BoardError("the node's board " + fault + "; not used");
  fstat(memory.get(), &mapping.mapped_->about);
  mapping.mapped_->memory = std::move(memory);
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
  const ipc::mode_t mode = access == Access::kUse ? ipc::read_write : ipc::read_only;
  try {
    mapping.mapped_->object =
        ipc::shared_memory_object(ipc::open_only, mapping.name_.c_str(), mode);
    refuse_foreign(descriptor(mapping.mapped_->object), mapping.name_);
    const std::string fault = fault_of(mapping.mapped_->object);
    if (!fault.empty()) {
      throw BoardError("/dev/shm/" + mapping.name_ + " " + fault +
                       "; end the processes of that session, then remove it");
    }
    mapping.mapped_->region = ipc::mapped_region(mapping.mapped_->object, mode);
  } catch (const ipc::interprocess_exception& error) {
    if (error.get_error_code() == ipc::not_found_error) {
      throw NoBoard("no board /dev/shm/" + mapping.name_ + ": the session has no controller");
    }
    throw BoardError("cannot open /dev/shm/" + mapping.name_ + ": " + error.what());
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
  const int fd = descriptor(mapping.mapped_->object);
  if (!lock_byte(fd, kUserByte, F_RDLCK) || !still_named(fd, mapping.name_)) {
    throw NoBoard("the board /dev/shm/" + mapping.name_ + " is being removed");
  }
  return mapping;
}

BoardMapping BoardMapping::inspect(std::string_view session) {
  if (session == base::kNodeSession) return of_node(Access::kInspect);
  return open(session, Access::kInspect);
}

BoardMapping::Adoption BoardMapping::adopt_or_create(std::string_view session) {
  using namespace std::chrono_literals;
  const base::StandardFiles taken;
  const std::string name = board_name(session);
  // Several rounds: the last user of a board may remove it meanwhile.
  for (int round = 0; round < 50; ++round, std::this_thread::sleep_for(10ms)) {
    Adoption result;
    BoardMapping& mapping = result.mapping;
    mapping.name_ = name;
    try {
      ipc::permissions owner_only(0600);
      mapping.mapped_->object =
          ipc::shared_memory_object(ipc::open_or_create, name.c_str(), ipc::read_write, owner_only);
    } catch (const ipc::interprocess_exception& error) {
      throw BoardError("cannot open /dev/shm/" + name + ": " + error.what() +
                       "; if another user owns it, choose another --session");
    }
    const int fd = descriptor(mapping.mapped_->object);
    refuse_foreign(fd, name);
    if (!lock_byte(fd, kControllerByte, F_WRLCK)) {
      const std::string controller = controller_of(mapping.mapped_->object);
      if (controller.empty()) continue;
      throw BoardError("session " + std::string(session) + " has " + controller +
                       "; stop it or choose another --session");
    }
    if (!still_named(fd, name)) continue;
    const bool unused = lock_byte(fd, kUserByte, F_WRLCK);
    const std::string fault = fault_of(mapping.mapped_->object);
    if (!unused && !fault.empty()) {
      throw BoardError("/dev/shm/" + name + " " + fault +
                       "; processes still use it: end them first");
    }
    ipc::offset_t size = 0;
    if (unused && mapping.mapped_->object.get_size(size) && size != 0) {
      ipc::shared_memory_object::remove(name.c_str());  // stale: no process uses it
      continue;
    }
    if (unused) mapping.mapped_->object.truncate(sizeof(Board));
    mapping.mapped_->region = ipc::mapped_region(mapping.mapped_->object, ipc::read_write);
    result.adopted = !unused;
    if (unused) initialise(*new (mapping.mapped_->region.get_address()) Board{});
    lock_byte(fd, kUserByte, F_UNLCK);
    return result;
  }
  throw BoardError("/dev/shm/" + name + " keeps changing; try again");
}

bool BoardMapping::remove_if_unused(const std::string& socket) noexcept {
  constexpr int kTries = 20;
  const int fd = descriptor(mapped_->object);
  // The program may have closed it, and may have locks of its own on what has the number now.
  if (fd < 0 || !still_named(fd, name_)) return false;
  // Give up our own use first, and retry: otherwise two last users that leave at the same time
  // would each see only the other.
  lock_byte(fd, kUserByte, F_UNLCK);
  for (int i = 0; i < kTries; ++i, std::this_thread::yield()) {
    if (!lock_byte(fd, kControllerByte, F_WRLCK)) continue;
    const bool unused = lock_byte(fd, kUserByte, F_WRLCK) && still_named(fd, name_);
    if (unused) {
      // The name goes last: after that a new controller may create a board and a socket.
      if (!socket.empty()) unlink(socket.c_str());
      ipc::shared_memory_object::remove(name_.c_str());
    }
    if (!unused) lock_byte(fd, kControllerByte, F_UNLCK);  // a new controller may want it
    return unused;
  }
  return false;
}

/// Of the mapping, not of the descriptor: the program may have closed that, and another file may
/// have its number. An old size of 0 leaves the mapping and makes a second one of the same pages.
void* BoardMapping::another_view() const noexcept {
  void* const view =
      mremap(mapped_->region.get_address(), 0, mapped_->region.get_size(), MREMAP_MAYMOVE);
  if (view == MAP_FAILED) return nullptr;
  madvise(view, sizeof(Board), MADV_DONTFORK);
  return view;
}

void BoardMapping::abandon_in_child() noexcept {
  mapped_->object = {};
  mapped_->drop_memory();
  // The mapping keeps the file description alive, and with it the lock. The child gets private
  // memory at the same address, so that pointers into the board stay harmless.
  static_cast<void>(mmap(mapped_->region.get_address(), mapped_->region.get_size(),
                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

}  // namespace sluice::shm
