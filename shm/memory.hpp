#pragma once
#include <cstdint>

#include "shm/board.hpp"
#include "shm/gates.hpp"

/// How a broker shares device memory out to the clients of a device, through the MemoryLine of each
/// slot. A broker is a client of higher priority, such as `sluice serve`; a device has one.
///
///   A grant or an order counts only while the broker that wrote it lives, and only for the client
///   for which it was written. Every reader checks both, so nothing has to be cleaned up before the
///   death of a broker stops to matter, and a slot's next client never sees the words of the last.
///
/// All functions are safe to call from any thread and any process. They allocate nothing and throw
/// nothing.
namespace sluice::shm {

/// An order as the C API and the board have it, in one word.
struct Order {
  std::uint64_t epoch = 0;  ///< Counts the orders of a slot.
  MemoryOrder kind = MemoryOrder::kNone;

  friend bool operator==(const Order&, const Order&) = default;

  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return (epoch << 8U) | static_cast<std::uint64_t>(kind);
  }
  [[nodiscard]] static constexpr Order unpack(std::uint64_t word) noexcept {
    return {word >> 8U, static_cast<MemoryOrder>(word & 0xffU)};
  }
  /// Whether launches are refused until the order has been obeyed.
  [[nodiscard]] constexpr bool refuses() const noexcept {
    return kind == MemoryOrder::kDrop || kind == MemoryOrder::kSleep || kind == MemoryOrder::kEpoch;
  }
  /// Whether the client waits, after it has obeyed, until the next order.
  [[nodiscard]] constexpr bool sleeps() const noexcept {
    return kind == MemoryOrder::kSleep || kind == MemoryOrder::kEpoch;
  }
};

/// Whether the client of this id lives. The kernel's proof of a death takes 0.1 ms; a client that
/// is exiting does not count.
[[nodiscard]] bool client_lives(const Board& board, std::uint32_t id) noexcept;

/// Whether the words of a living broker are in the line for this client.
[[nodiscard]] bool has_broker(const Board& board, SlotOf client) noexcept;

// --- For the broker -----------------------------------------------------------------------------

/// Limits what `client` may hold, in bytes; kNoLimit: no limit. Takes nothing away from a client
/// that holds more: an order does that.
void set_grant(Board& board, SlotOf broker, SlotOf client, std::uint64_t bytes) noexcept;

/// Gives `client` an order. Replaces the last one, obeyed or not. Returns Order::pack(). The caller
/// writes the grant first, if the order goes with a new one.
std::uint64_t give_order(Board& board, SlotOf broker, SlotOf client, MemoryOrder kind) noexcept;

/// Opens the gate of `client` until end_drain(), until the client reports an order as obeyed, or
/// until the broker dies. With work queued behind a closed gate, the client's calls that give
/// memory back would block, and a broker that waits for the memory inside its own job would wait
/// for itself. Critical jobs of others meet what the client has queued.
void begin_drain(Board& board, SlotOf broker, SlotOf client) noexcept;
void end_drain(Board& board, SlotOf broker, SlotOf client) noexcept;

// --- For the client and for reports -------------------------------------------------------------

/// What the broker lets `client` hold, in bytes; kNoLimit: no limit.
[[nodiscard]] std::uint64_t grant_of(const Board& board, SlotOf client) noexcept;

/// What the user or the site lets a client hold, whatever its priority, in bytes; kNoLimit: no
/// limit.
[[nodiscard]] inline std::uint64_t limit_of(const Slot& slot) noexcept {
  const std::uint64_t limit = slot.memory_limit.load(std::memory_order_relaxed);
  return limit == 0 ? kNoLimit : limit;
}

/// The memory of a client at one moment. Bytes.
struct ClientMemory {
  std::uint64_t held = 0;
  std::uint64_t grant = kNoLimit;
  /// Its own fit: it needs base + slope * items. 0: unknown.
  std::uint64_t base = 0;
  std::uint64_t slope = 0;
  /// It has used the C API of memory, so it knows orders. Others are never refused a launch: an
  /// order to them has no effect, and only a grant bounds them.
  bool obeys = false;
};
[[nodiscard]] ClientMemory memory_of(const Board& board, SlotOf client) noexcept;

/// The last valid order, obeyed or not. Without one, an order of kind kNone.
[[nodiscard]] Order last_order(const Board& board, SlotOf client) noexcept;

/// The valid order that has not been obeyed. Without one, an order of kind kNone.
[[nodiscard]] Order pending_order(const Board& board, SlotOf client) noexcept;

/// For the owner: the order of this epoch has been obeyed. Returns false, and changes nothing, for
/// an order that was not given or was reported before.
bool note_obeyed(MemoryLine& line, std::uint64_t epoch) noexcept;

/// For the owner: the program has waited for its GPU work in order to obey the last order.
void note_waited(MemoryLine& line, std::uint64_t began_ns, std::uint64_t ended_ns) noexcept;

/// How long a client took to obey, in ns.
struct ObeyParts {
  std::uint64_t drop_ns = 0;   ///< From the order until it began to wait for its GPU work.
  std::uint64_t drain_ns = 0;  ///< That wait.
  std::uint64_t give_ns = 0;   ///< The rest, until it reported the order as obeyed.
};
/// Of the last order, once it has been obeyed. Of a client that did not wait for its GPU work, only
/// `drop_ns` is not 0: the parts cannot be told apart.
[[nodiscard]] ObeyParts obey_parts(const MemoryLine& line) noexcept;

/// For the owner: holds `bytes` now.
void note_held(MemoryLine& line, std::uint64_t bytes) noexcept;

// --- For the controller -------------------------------------------------------------------------

/// For a slot without a process.
void reset(MemoryLine& line) noexcept;

}  // namespace sluice::shm
