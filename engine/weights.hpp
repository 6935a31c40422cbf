#pragma once
#include <cstddef>
#include <cstdint>

namespace sluice::engine {

/// The weights of a model, which can leave the device and come back. One thread at a time may call
/// these functions, while other threads run batches of the model or of others.
class Weights {
 public:
  Weights() = default;
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;
  virtual ~Weights() = default;

  /// The device memory that loaded weights occupy, in whole pages.
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;

  /// The blocks of the model.
  [[nodiscard]] virtual std::size_t blocks() const = 0;

  /// Takes device memory and begins to copy the weights in, in the order of the blocks.
  /// Asynchronous: a batch may be launched at once, and each block waits on the device for its own
  /// weights. Does nothing if they are loaded. Throws OutOfMemory, and then holds no memory;
  /// base::RunError; ContextLost.
  virtual void load() = 0;

  /// The number of blocks, from the first, whose weights are in; 0 also without memory. Does not
  /// wait. Throws ContextLost.
  [[nodiscard]] virtual std::size_t loaded_blocks() = 0;

  /// Waits for the copies of load() and gives the memory back. No block may be running or launched
  /// before the next load(). Does nothing if the weights are not loaded. Throws ContextLost.
  virtual void evict() = 0;
};

}  // namespace sluice::engine
