#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "controller/ledger.hpp"
#include "controller/outside_use.hpp"
#include "shm/board.hpp"
#include "shm/outside_word.hpp"
#include "shm/snapshot.hpp"

namespace sluice::controller {

/// What only NVML, /proc and a look every two seconds can tell, shown on the board:
/// - How many processes use each device without a slot, while a client outranks another or has a
///   target that is a multiple of its time alone. Next to a busy one, a program with short slices
///   would get little (docs/reference/slices.md).
/// - What the session has gained (ledger.hpp).
/// It also starts another keeper of the session's MPS daemon if that was killed.
/// In a thread of its own, because NVML and /proc may block.
class Lookout {
 public:
  Lookout(shm::Board& board, std::string session);
  ~Lookout();
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  /// As of the last look, for the metrics. Any thread may call it.
  struct Use {
    std::map<int, DeviceUse> devices;
    std::map<int, JobUse> jobs;
  };
  [[nodiscard]] Use use() const;

  /// `found`: by device; nobody is outside on the others.
  static void show(shm::Board& board, const std::map<int, shm::OutsideWord>& found) noexcept;
  /// Whether slices depend on it now, or what a target calls the time alone.
  [[nodiscard]] static bool matter(const shm::Board& board) noexcept;

 private:
  /// The thread may outlive the object, for as long as it is blocked.
  struct Shared {
    std::mutex mutex;
    std::condition_variable wake;
    shm::Board* board = nullptr;  ///< Null: over.
    std::string session;
    Ledger ledger;
    // Only the thread uses these.
    std::uint64_t looks = 0;
    std::map<int, double> busy;  ///< What the driver said last of each GPU.
    OutsideUse outside_use;
    std::uint64_t measured_us = 0;  ///< Until when use was measured (CLOCK_REALTIME).
    std::set<int> not_measured;     ///< The devices of which the log has said so.
  };
  static std::map<int, shm::OutsideWord> look_outside(Shared& shared,
                                                      const shm::Snapshot& snapshot);
  static void look_once(Shared& shared, std::unique_lock<std::mutex>& lock);
  static void look(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace sluice::controller
