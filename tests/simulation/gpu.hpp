#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>

namespace sluice::simulation {

/// With it end its streams and events. The next one has the same handle.
struct GpuContext {
  bool exists = true;
  int ended = 0;  ///< How many had the handle before.
};

/// A stream of a process on the GPU: its work runs in order, next to that of all other streams.
struct GpuStream {
  static constexpr std::size_t kQueue = 8;  ///< With so much in it, the driver blocks.
  struct Event {
    const GpuContext* context;
    int of;  ///< Which one of those with that handle.
    bool destroyed = false;
    std::uint64_t recorded = 0;
    std::uint64_t done = 0;
    std::uint64_t done_ns = 0;
  };
  struct Item {
    enum class Kind : std::uint8_t { kKernel, kWaitEqual, kWaitAtLeast, kEvent };
    Kind kind = Kind::kKernel;
    std::uint64_t value = 0;  ///< ns, the value waited for, or the number of the record.
    const std::uint64_t* word = nullptr;
    Event* event = nullptr;
    bool paced = false;    ///< A kernel that was launched under a policy that spaces launches.
    bool counted = false;  ///< A kernel that was launched by a client.
    const GpuStream* other = nullptr;  ///< The kernel also ends when one of that stream has ended.
    std::uint64_t other_ended = 0;     ///< So many had, when it was launched.
    bool in_job = false;  ///< Counted, and its process was a client when the launch began.
  };
  GpuContext* context = nullptr;
  bool exists = true;
  bool ends = false;  ///< A thread of the program is about to end it.
  int users = 0;      ///< Calls of the program that name it.
  std::uint64_t kernels_ended = 0;
  std::deque<Item> items;
  std::uint64_t begun_ns = 0;      ///< Of the first item; 0: it has not begun.
  std::uint64_t busy_from_ns = 0;  ///< Since when it has had work; 0: it has none.
  std::uint64_t free_ns = 0;       ///< When the item before it ended.
  int since_closed = 0;            ///< Paced kernels that began since the gate closed.
  std::uint64_t gave_up_ns = 0;    ///< When a launch had waited for seconds, since an item ended.
  int most_since_closed = 1'000;   ///< As the policy has it.

  /// Does what is due until `now_ns`. True if an item has ended.
  bool advance(std::uint64_t now_ns);
  /// When an item ends, as far as that is known.
  [[nodiscard]] std::uint64_t next_ns() const;
};

}  // namespace sluice::simulation
