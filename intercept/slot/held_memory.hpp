#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "intercept/driver/contexts.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/slot/client_slot.hpp"

namespace sluice::intercept {

/// The device memory of this process, exact by counting its driver calls. Known before there is a
/// client; from the attach on, the sum of a device is in the slot of its client. Refuses what
/// exceeds the limit of a device, or the grant of a client of priority 0. Thread-safe; makes no
/// driver call.
///
/// A thread of the program may be cancelled inside the driver's call. So a call that ends something
/// marks its record first and removes it afterwards, and no object lives in between. What a thread
/// that no longer exists has reserved or marked does not count. Records of the
/// same address or handle can exist at the same time: the driver may give an address out again
/// before the thread that freed it gets back here.
class HeldMemory {
 public:
  /// What a call names when it ends memory.
  enum class Table : std::uint8_t {
    kAddresses,  ///< Memory that has an address for as long as it lives.
    kHandles,    ///< References to physical memory.
    kMappings,   ///< Addresses at which physical memory is mapped.
  };
  /// Names a memory pool of the driver, whose memory streams allocate and free. 0: none. What the
  /// pool has taken from its device counts, which is more than what is allocated: a stream has not
  /// come to a free yet, or the pool keeps memory for later.
  using PoolId = std::size_t;
  /// For ask_pools(): the pools that keep anything, of devices with a limit or grant; all pools.
  static constexpr CUdevice kKeeping = -2;
  static constexpr CUdevice kAll = -3;
  /// Memory that is held: as long as there is a record of it.
  struct Piece {
    CUdevice device = 0;
    std::uint64_t bytes = 0;
    ContextId context;  ///< Ends with this context; a null handle: with no context.
    PoolId pool = 0;    ///< Of memory of a pool.
  };
  /// Records that a call is about to end; 0: none is known.
  using Mark = std::uint64_t;

  /// `own_limit`: of each device before it has a client, in bytes; 0: none. Then the limit of a
  /// device is in the slot of its client.
  explicit HeldMemory(std::uint64_t own_limit) noexcept;

  /// Before a call of this thread that takes memory. False if it would exceed the limit, or the
  /// grant and must not (Orders::may_exceed()). If true, add() or unreserve() must follow in this
  /// thread. Reserved bytes count towards limit and grant, but not as held: the driver may refuse
  /// them, and a broker that saw them would take as many from others. `own`: the pool that is to
  /// give the memory, perhaps from what it keeps.
  [[nodiscard]] bool reserve(CUdevice device, std::uint64_t bytes, PoolId own = 0) noexcept;
  /// Whether reserve() would not refuse it. Counts nothing.
  [[nodiscard]] bool fits(CUdevice device, std::uint64_t bytes, PoolId own = 0) noexcept;
  /// An allocation that was given exceeds the limit: counts it as refused.
  void refuse(CUdevice device, std::uint64_t bytes) noexcept;
  void unreserve() noexcept;
  /// The call has succeeded. The bytes were reserved. Without memory for the record, the piece is
  /// not counted.
  void add(Table table, std::uint64_t key, const Piece& piece) noexcept;
  /// Another record of a piece that `from` knows by `known`: a mapping of `size` bytes, or one more
  /// reference. Does nothing if the piece is not known, as for memory of another process.
  void add_record(Table table, std::uint64_t key, std::uint64_t size, Table from,
                  std::uint64_t known) noexcept;
  /// Whether the table has a record of this key.
  [[nodiscard]] bool knows(Table table, std::uint64_t key) noexcept;

  /// Around a call that ends what `key` names: one record, or all mappings in `size` bytes.
  [[nodiscard]] Mark begin_end(Table table, std::uint64_t key, std::uint64_t size = 1) noexcept;
  void end(Table table, std::uint64_t key, std::uint64_t size, Mark mark, bool succeeded) noexcept;

  /// The pool of this name. One that was not known is that of `device`; -1: its memory is not that
  /// of a device. 0 if there is no memory for it.
  [[nodiscard]] PoolId pool(CUmemoryPool name, CUdevice device) noexcept;
  [[nodiscard]] CUdevice device_of(PoolId pool) noexcept;
  /// Around a call that ends the pool: meanwhile the name means nothing. What is allocated lives
  /// on.
  void begin_end_pool(CUmemoryPool name) noexcept;
  void end_pool(CUmemoryPool name, bool succeeded) noexcept;
  /// Calls `ask` for each pool with the name of the pool, which returns what it has taken from the
  /// device; nothing if the driver does not say. `device`: of which, kKeeping or kAll. Without the
  /// lock.
  template <class Ask>
  void ask_pools(CUdevice device, Ask ask) noexcept {
    CUmemoryPool name = nullptr;
    for (PoolId at = 0; (at = next_pool(at, device, name)) != 0;) {
      if (const std::optional<std::uint64_t> bytes = ask(name)) pool_has(at, name, *bytes);
    }
  }
  /// False: ask_pools() would ask nothing.
  [[nodiscard]] bool has_pools() const noexcept { return has_pools_.load(); }
  /// How much memory its pools have taken from the device beyond what is allocated.
  [[nodiscard]] std::uint64_t kept(CUdevice device) noexcept;
  /// Whether a wait for it was in vain, and nothing has changed since. It may be parts of pages
  /// that are in use.
  [[nodiscard]] bool waited_in_vain(CUdevice device) noexcept;
  void note_vain_wait(CUdevice device) noexcept;
  /// Whether a limit or a grant bounds what is held. If not, what the pools have is only shown, and
  /// nobody asks for it at each call: that costs as much as the allocation.
  [[nodiscard]] bool is_bounded(CUdevice device) noexcept;
  /// Whether more is held than the limit.
  [[nodiscard]] bool exceeds_limit(CUdevice device) noexcept;

  /// For a context that has ended (a null handle: unknown which one).
  void context_ended(const ContextId& context) noexcept;

  /// From now on the sum of the client's device is in its slot.
  void show_in(ClientSlot& client) noexcept;

  [[nodiscard]] std::uint64_t bytes_on(CUdevice device) noexcept;
  /// What the program may hold on the device, and how much of it is left, also under the grant.
  /// shm::kNoLimit: any amount.
  [[nodiscard]] std::uint64_t limit(CUdevice device) noexcept;
  [[nodiscard]] std::uint64_t left(CUdevice device) noexcept;

 private:
  struct Record {
    std::shared_ptr<const Piece> piece;
    std::uint64_t size = 1;  ///< Of a mapping; else 1.
    Mark ending = 0;         ///< A call is about to end it.
    pid_t ended_by = 0;      ///< The thread in that call.
  };
  using Records = std::multimap<std::uint64_t, Record>;
  struct Device {
    std::uint64_t bytes = 0;    ///< Allocated.
    std::uint32_t refused = 0;  ///< Allocations, before there was a client.
    std::uint64_t kept_in_vain = 0;
    ClientSlot* client = nullptr;
  };
  struct Pool {
    CUmemoryPool name = nullptr;    ///< Null if it has none any more.
    CUmemoryPool ending = nullptr;  ///< The name that a call is about to end.
    CUdevice device = -1;
    std::uint64_t allocated = 0;  ///< To the calls that free it.
    std::uint64_t reserved = 0;   ///< What it has taken, as the driver said last.
  };
  enum class Refusal : std::uint8_t { kNone, kByGrant, kByLimit };
  /// By a call that has not returned.
  struct Reservation {
    pid_t thread = 0;  ///< 0: none.
    CUdevice device = 0;
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] Records& records(Table table) noexcept {
    return tables_[static_cast<std::size_t>(table)];
  }
  [[nodiscard]] Device* device(CUdevice index) noexcept;
  void change(Device& device, std::uint64_t bytes) noexcept;
  [[nodiscard]] std::uint64_t kept_on(CUdevice index, PoolId but) const noexcept;
  [[nodiscard]] PoolId next_pool(PoolId behind, CUdevice device, CUmemoryPool& name) noexcept;
  void pool_has(PoolId pool, CUmemoryPool name, std::uint64_t bytes) noexcept;
  Records::iterator erase(Records& from, Records::iterator record) noexcept;
  [[nodiscard]] static bool is_ending(const Record& record) noexcept;
  static std::shared_ptr<const Piece> living(Records& in, std::uint64_t key) noexcept;
  void forget_ended(Records& in, std::uint64_t key, std::uint64_t size) noexcept;
  [[nodiscard]] Reservation* own_reservation() noexcept;
  [[nodiscard]] std::uint64_t reserved_on(CUdevice device) const noexcept;
  void forget_reservations_of_ended_threads() noexcept;
  [[nodiscard]] std::uint64_t limit_of(const Device& device) const noexcept;
  [[nodiscard]] static std::uint64_t grant_of(const Device& device) noexcept;
  [[nodiscard]] bool bounds(const Device* device) const noexcept;
  [[nodiscard]] std::uint64_t left_of(CUdevice index, std::uint64_t most,
                                      PoolId own = 0) const noexcept;
  [[nodiscard]] Refusal refusal_of(CUdevice index, std::uint64_t bytes, PoolId own) noexcept;
  void count_refused(Device& device) noexcept;
  void say_refused(CUdevice device, std::uint64_t bytes) noexcept;

  const std::uint64_t own_limit_;
  std::atomic<bool> said_refused_{false};
  std::mutex mutex_;
  std::array<Records, 3> tables_;
  Mark last_mark_ = 0;
  std::array<Device, kMostDevices> devices_{};
  std::vector<Reservation> reservations_;
  std::vector<Pool> pools_;  ///< By PoolId, from 1.
  std::atomic<bool> has_pools_{false};
};

}  // namespace sluice::intercept
