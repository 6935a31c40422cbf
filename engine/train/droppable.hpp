#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::engine {

/// Device memory of a training, in bytes.
struct MemoryUse {
  std::uint64_t resident = 0;  ///< In use now.
  std::uint64_t peak = 0;      ///< Most in use since restart_peak().
  std::uint64_t held = 0;      ///< Also what the framework keeps for later.
};

/// The work of a training, in parts that can be taken back. Not thread-safe.
class Droppable {
 public:
  Droppable() = default;
  Droppable(const Droppable&) = delete;
  Droppable& operator=(const Droppable&) = delete;
  virtual ~Droppable() = default;

  /// Before a micro-batch: saves what the micro-batch may change.
  virtual void save() = 0;
  /// Runs the forward and the backward pass of `items` items from `start`. Throws what the
  /// framework throws when a launch is refused, and engine::OutOfMemory.
  virtual void run(std::size_t start, std::size_t items) = 0;
  /// The micro-batch counts.
  virtual void keep() = 0;
  /// Takes the gradients of the micro-batch back. Launches nothing.
  virtual void drop() = 0;
  /// Puts back the rest of what save() has saved. Launches are accepted again.
  virtual void restore() = 0;
  /// Gives unused memory back to the driver until the framework holds at most `most` bytes, if it
  /// can.
  virtual void free_memory(std::uint64_t most) = 0;
  /// Nothing on a device whose memory is not shared out.
  [[nodiscard]] virtual std::optional<MemoryUse> memory() const = 0;
  virtual void restart_peak() = 0;
};

}  // namespace sluice::engine
