#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "shm/board.hpp"

/// What clients and the controller say to each other: one fixed-size request, one fixed-size
/// reply, over a SOCK_SEQPACKET unix socket. The connection then stays open as the sign that the
/// controller lives. Nothing on a launch or job path sends a message.
namespace sluice::shm {

inline constexpr std::uint32_t kWireVersion = 2;

enum class RequestKind : std::uint32_t {
  kAttach = 1,  ///< Give me a slot, or my old one back (slot, generation, board_id).
  kLease = 2,   ///< Live until the sending process has ended, or has attached and left.
  kSet = 3,  ///< Another priority, or policy, for the client of `slot`. Anybody of the user asks.
};

/// In a kSet: leave it as it is.
inline constexpr std::uint32_t kKeepPriority = 0xffff'ffff;
inline constexpr std::uint64_t kKeepPolicy = ~std::uint64_t{0};

struct Request {
  std::uint32_t version = kWireVersion;
  RequestKind kind = RequestKind::kAttach;
  std::uint32_t priority = 0;    ///< 0-255
  std::int32_t slot = -1;        ///< The old slot, or -1. Of kSet: the client's.
  std::uint32_t generation = 0;  ///< Of that slot.
  std::uint32_t reserved = 0;
  std::uint64_t board_id = 0;  ///< Of the mapped board, or 0.
  std::uint64_t policy = 0;    ///< Policy::pack()
  std::array<std::uint8_t, 16> device_uuid{};
  std::array<char, 40> device_name{};
  std::array<char, kNameSize>
      name{};  ///< What users call the client; empty: the name of its process.
};

enum class ReplyStatus : std::uint32_t {
  kOk = 0,
  kSessionFull,   ///< All slots are taken.
  kCannotWatch,   ///< The process is not visible from the controller (another pid namespace).
  kOtherBoard,    ///< The slot is another client's, or of a board that is no more.
  kWrongVersion,  ///< Library and controller are of different builds.
  kBadRequest,
};

struct Reply {
  std::uint32_t version = kWireVersion;
  ReplyStatus status = ReplyStatus::kBadRequest;
  std::int32_t slot = -1;
  std::uint32_t generation = 0;
  std::uint64_t board_id = 0;
  std::array<char, 104> text{};  ///< One line for people, NUL-terminated; empty when kOk.
};

static_assert(std::is_trivially_copyable_v<Request> && sizeof(Request) == 160);
static_assert(std::is_trivially_copyable_v<Reply> && sizeof(Reply) == 128);

/// Connects to the controller of `session`. Returns a close-on-exec file descriptor or -errno.
/// Allocation-free when given the path; never waits longer than a full accept queue needs.
int connect_controller(const char* socket_path) noexcept;

/// Sends a request and waits for its reply, at most `timeout_ms`. 0 or -errno. Allocation-free.
int ask(int fd, const Request& request, Reply& reply, int timeout_ms) noexcept;

}  // namespace sluice::shm
