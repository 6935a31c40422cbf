#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "shm/board.hpp"

/// The messages between clients and the controller: one fixed-size request and one fixed-size reply
/// over a SOCK_SEQPACKET unix socket. The connection then stays open, and its hang-up shows that
/// the controller ended. No launch and no job sends a message.
namespace sluice::shm {

inline constexpr std::uint32_t kWireVersion = 7;

enum class RequestKind : std::uint32_t {
  kAttach = 1,  ///< Give me a slot, or my previous one (slot, generation, board_id).
  kLease = 2,   ///< Keep running until the sender has ended, or has attached and left.
  kSet = 3,  ///< Change the priority, policy, target or memory limit of the client in `slot`. Any
             ///< process of the user may ask.
  // Of the node service only, whose board has no name. The reply brings a descriptor.
  kBoard = 4,    ///< The board, for reading and writing; for a reader, for reading.
  kInspect = 5,  ///< The board, for reading. The reply's text is about the service.
  kReport = 6,   ///< What a reader says as the owner of its slot: a Report, without a reply.
};

/// Values of a kSet request that keep the current settings.
inline constexpr std::uint32_t kKeepPriority = 0xffff'ffff;
inline constexpr std::uint64_t kKeepPolicy = ~std::uint64_t{0};
inline constexpr std::uint64_t kKeepTarget = ~std::uint64_t{0};
inline constexpr std::uint32_t kKeepSlice = 0xffff'fffe;
inline constexpr std::uint64_t kKeepMemory = ~std::uint64_t{0};
inline constexpr std::uint32_t kKeepWeight = 0xffff'ffff;
inline constexpr std::uint16_t kKeepGive = 0;

struct Request {
  std::uint32_t version = kWireVersion;
  RequestKind kind = RequestKind::kAttach;
  std::uint32_t priority = 0;    ///< 0-255
  std::int32_t slot = -1;        ///< The previous slot, or -1; for kSet, the client's slot.
  std::uint32_t generation = 0;  ///< The generation of `slot`.
  std::uint32_t slice = 0;       ///< slice.hpp
  std::uint64_t board_id = 0;    ///< The id of the mapped board, or 0.
  std::uint64_t policy = 0;      ///< Policy::pack()
  std::uint64_t target = 0;      ///< Target::pack()
  std::uint64_t memory = 0;      ///< The limit of its device memory in bytes; 0: none.
  std::uint32_t weight = 0;      ///< weight.hpp
  std::uint32_t mps = 0;         ///< MpsWord; not used by kSet.
  std::array<std::uint8_t, 16> device_uuid{};
  std::array<char, 38> device_name{};
  /// say_give() in give.hpp. 0: the default, and kKeepGive in a change. A peer that does not know
  /// this field has the end of a longer `device_name` here, whose last character is NUL: it says
  /// nothing, and reads nothing.
  std::uint16_t give = 0;
  std::array<char, kNameSize> name{};    ///< For users; empty: the name of the process.
  std::array<char, kLabelSize> label{};  ///< "key=value,key=value"; not used by kSet.
};

/// What a reader says about itself, on each tick of its watcher. shm/report.hpp fills and reads it.
/// Every value may be a lie of its sender, and concerns the sender's slot only.
struct Report {
  static constexpr std::size_t kWords = 368;

  std::uint32_t version = kWireVersion;
  RequestKind kind = RequestKind::kReport;
  std::int32_t slot = -1;
  std::uint32_t generation = 0;
  SlotState state = SlotState::kReserved;  ///< What the owner wants: live or leaving.
  std::array<std::uint8_t, 3> reserved{};
  std::uint32_t refuses =
      0;  ///< Not 0 while launches are refused for an order: kOrdered stays set.
  std::uint64_t job = 0;
  std::uint64_t policy = 0;  ///< Policy::pack() of the policy in force.
  std::uint64_t done = 0;    ///< Epoch of the last obeyed order.
  std::array<std::uint64_t, 64> waived{};
  std::array<char, 32> unhooked_name{};
  std::array<std::uint64_t, kWords> words{};  ///< Status output, and what a broker reads.
};

enum class ReplyStatus : std::uint32_t {
  kOk = 0,
  kSessionFull,   ///< No slot is free.
  kCannotWatch,   ///< The controller cannot see the process: another pid namespace, or ended.
  kOtherBoard,    ///< The slot belongs to another client, or to a board that no longer exists.
  kWrongVersion,  ///< The library and the controller have different wire versions.
  kBadRequest,
  kNotAllowed,  ///< The site policy of the node refuses.
};

struct Reply {
  std::uint32_t version = kWireVersion;
  ReplyStatus status = ReplyStatus::kBadRequest;
  std::int32_t slot = -1;
  std::uint32_t generation = 0;
  std::uint64_t board_id = 0;
  std::array<char, 104> text{};  ///< One line for the user, NUL-terminated. With kOk: a notice,
                                 ///< or empty.
};

static_assert(std::is_trivially_copyable_v<Request> && sizeof(Request) == 288);
static_assert(offsetof(Request, give) == 118 && offsetof(Request, name) == 120);
static_assert(std::is_trivially_copyable_v<Reply> && sizeof(Reply) == 128);
static_assert(std::is_trivially_copyable_v<Report> && sizeof(Report) == 3536);

/// Connects to a controller's socket. Returns a close-on-exec file descriptor or -errno; -EPERM if
/// another user than the expected one is at the other end. Does not allocate and does not block.
int connect_controller(const char* socket_path) noexcept;

/// As connect_controller(), but waits at most `most_ms` for a place in the queue of a busy
/// controller, which another user may have filled. Then returns -EAGAIN.
int connect_patiently(const char* socket_path, int most_ms) noexcept;

/// Sends a request without waiting. Returns 0 or -errno. Does not allocate.
int tell(int fd, const Request& request) noexcept;

/// Sends a report without waiting. Returns 0 or -errno. Does not allocate.
int tell(int fd, const Report& report) noexcept;

/// Takes the reply if it is there. Returns 0, -EAGAIN if it is still to come, or another -errno.
/// Does not allocate and does not block.
int receive(int fd, Reply& reply) noexcept;

/// Sends a request and waits at most `timeout_ms` for the reply. Returns 0 or -errno. Does not
/// allocate.
int ask(int fd, const Request& request, Reply& reply, int timeout_ms) noexcept;

/// As ask(), for a request of kind kBoard or kInspect. If the reply is kOk, returns the board's
/// close-on-exec descriptor, which the caller owns. Returns -EACCES after another reply, else
/// -errno.
int ask_for_board(int fd, RequestKind kind, Reply& reply, int timeout_ms) noexcept;

}  // namespace sluice::shm
