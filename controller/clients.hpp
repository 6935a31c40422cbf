#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "controller/process.hpp"
#include "controller/tally.hpp"
#include "shm/view.hpp"

namespace sluice::controller {

/// What the controller knows about a slot's client in addition to the board.
struct Tenant {
  std::shared_ptr<const ClientProcess> process;
  std::uint64_t hung_up_ns = 0;  ///< When the connection ended, if no thread held the mutex then.
  std::uint64_t dead_since_ns = 0;   ///< Time when the mutex was first found released.
  std::uint64_t slack_since_ns = 0;  ///< Of a reader: since when its slack has been limited.
  bool adopted = false;              ///< It has had no connection to this controller yet.
  uid_t uid = 0;                     ///< Not from the board, which clients may write.
};

/// The clients of the session: the board and the tenants of its slots. Only the thread of the loop
/// uses it.
struct Clients {
  explicit Clients(shm::Board& the_board, Tally& the_tally)
      : board(the_board), view(the_board), tally(the_tally) {}

  shm::Board& board;
  shm::BoardView view;
  Tally& tally;
  std::array<Tenant, shm::kSlots> tenants;

  [[nodiscard]] shm::Slot& slot(int index) { return board.slots[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Tenant& tenant(int index) { return tenants[static_cast<std::size_t>(index)]; }
  /// Whether the client of the slot can only read the board.
  [[nodiscard]] bool is_reader(int index) { return slot(index).reader.load() != 0; }
  [[nodiscard]] shm::SlotInfo info(int index) {
    return shm::SlotInfo::unpack(view.info(index).load());
  }
  /// "slot 3, pid 4711 (python train.py)", for the log.
  [[nodiscard]] std::string describe(int index);
};

/// Sets Slot::outranked of every slot that is in use. Called before a new client may begin a job
/// and after a change of priority; otherwise each client's watcher sets its own.
void update_outranked(Clients& clients);

/// Write and read a NUL-terminated text field of the board; a longer `text` is cut. Every byte is
/// atomic, because the metrics thread reads while the loop writes. What is read is printable: those
/// who may write to the board may be hostile.
void store_text(char* field, std::size_t size, std::string_view text) noexcept;
[[nodiscard]] std::string load_text(const char* field, std::size_t size);

}  // namespace sluice::controller
