#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

/// The line of a slot about device memory: what the client holds, what it may hold, and what a
/// broker asks of it. memory.hpp has the rules. Part of the board's layout.
namespace sluice::shm {

/// MemoryLine::grant of a client without a limit; SLUICE_NO_LIMIT of the C API.
inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

/// What a broker asks of a client; SLUICE_ORDER_... of the C API. docs/reference/memory.md says
/// what the client does.
enum class MemoryOrder : std::uint8_t {
  kNone,    ///< Ends a sleep; asks for nothing.
  kShrink,  ///< Hold no more than the grant from the end of the micro-batch on.
  kDrop,    ///< Launches are refused: drop the micro-batch and hold no more than the grant.
  kSleep,   ///< Launches are refused: drop the micro-batch, free what can be freed, and wait.
  kEpoch,   ///< Like kSleep, and the work continues at the start of the epoch.
};

struct MemoryLine {
  using Word = std::atomic<std::uint64_t>;
  using HalfWord = std::atomic<std::uint32_t>;

  Word grant;  ///< Bytes that the client may hold, or kNoLimit. The broker writes.
  Word held;   ///< Bytes of device memory that the client holds. The owner writes.
  Word peak;   ///< The greatest value of `held`. The owner writes.
  /// How the client's need depends on its batch: base + slope * items, in bytes. 0: unknown. The
  /// owner writes.
  Word base;
  Word slope;
  Word order;         ///< Order::pack() of the last order. The broker writes.
  Word done;          ///< Epoch of the last obeyed order. The owner writes.
  HalfWord critical;  ///< 1 while an optimizer step runs, in which no launch is refused. Owner.
  /// id_of() the broker that drains this client, with kDrainEnds at the end; 0 if none does. An
  /// input of the gate.
  HalfWord draining;
  HalfWord wake;      ///< Futex: counts orders and grants. The broker writes.
  HalfWord answered;  ///< Futex: counts obeyed orders. The owner writes.
  Word order_ns;      ///< Time of the last order, for reports.
  Word done_ns;       ///< Time when the last order was obeyed, for reports.
  /// id_of() the broker that wrote the grant and the order, and of the client for which they were
  /// written. They are void for other clients, and after the broker's death.
  HalfWord broker;
  HalfWord client;
  /// 1 after the program has called a function of the C API about orders. Launches of a program
  /// that does not know about orders are never refused. The owner writes.
  HalfWord obedient;
  HalfWord refused_allocations;  ///< By the limit or the grant. The owner writes.
  Word refused;                  ///< Refused launches. The owner writes.
  /// For reports: when the owner began to wait for its GPU work in order to obey, and for how long
  /// it has waited since then. They belong to the last order if they are not older. The owner
  /// writes.
  Word dropped_ns;
  Word drained_ns;
};
static_assert(sizeof(MemoryLine) == 128);

}  // namespace sluice::shm
