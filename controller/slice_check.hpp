#pragma once
#include <memory>
#include <string>
#include <vector>

#include "controller/tally.hpp"
#include "shm/board.hpp"

namespace sluice::controller {

enum class CheckSlices : std::uint8_t {
  kAuto,    ///< Of real GPUs, where programs outside can be seen.
  kAlways,  ///< Of the simulated GPU, too.
  kNever,
};

struct SliceCheckOptions {
  CheckSlices when = CheckSlices::kAuto;
  std::string session;
  std::string folder;  ///< See answer_folder().
  /// Tries the device whose UUID comes after it, and prints the answer.
  std::vector<std::string> command;
  std::uint64_t speed = 1;  ///< How many times faster than the clock the rule's time passes: tests.
};

/// Shows on the board whether each device obeys time slices, and has a device tried once, while
/// nobody uses it (docs/reference/slices.md). In a thread of its own, because files, NVML and
/// processes may block. Nobody waits for it.
class SliceCheck {
 public:
  SliceCheck(shm::Board& board, const Tally& tally, SliceCheckOptions options);
  /// Has the thread end a trial, and does not wait. If this process ends first, the kernel ends it.
  ~SliceCheck();
  SliceCheck(const SliceCheck&) = delete;
  SliceCheck& operator=(const SliceCheck&) = delete;

  /// Whether the device has a client, also one that is starting or does nothing: it may be about to
  /// take the memory that a trial would hold.
  [[nodiscard]] static bool in_use(const shm::Board& board, std::size_t device) noexcept;

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace sluice::controller
