#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "engine/context_lost.hpp"
#include "engine/out_of_memory.hpp"
#include "engine/weights.hpp"

namespace sluice::server {

/// The memory of a fake device.
struct FakeDevice {
  std::atomic<std::int64_t> free{1 << 30};
};

/// Weights whose copies end when the test says so. Loaded at first. Faults, such as an eviction
/// during a run, are counted.
class FakeWeights : public engine::Weights {
 public:
  FakeWeights(FakeDevice& device, std::uint64_t bytes, std::size_t blocks = 1)
      : device_(device), bytes_(bytes), blocks_(blocks) {
    load();
  }
  ~FakeWeights() override {
    lost = false;
    evict();
  }

  std::uint64_t bytes() const override { return bytes_; }
  std::size_t blocks() const override { return blocks_; }
  void load() override {
    if (lost) throw engine::ContextLost("the device is gone");
    if (fail) throw base::RunError("the file is gone");
    if (loaded_) return;
    const auto bytes = static_cast<std::int64_t>(bytes_);
    if ((device_.free -= bytes) < 0) {
      device_.free += bytes;
      throw engine::OutOfMemory("cuMemCreate failed");
    }
    loaded_ = true;
    ++loads;
  }
  std::size_t loaded_blocks() override {
    if (late.exchange(false)) return 0;
    return loaded_ ? std::min(copied.load(), blocks_) : 0;
  }
  void evict() override {
    if (lost) throw engine::ContextLost("the device is gone");
    if (on_evict) on_evict();
    if (!loaded_.exchange(false)) return;
    device_.free += static_cast<std::int64_t>(bytes_);
    if (running > 0) ++faults;
    ++evictions;
  }

  [[nodiscard]] bool loaded() const { return loaded_; }
  /// A block runs; without weights that is a fault.
  void run() {
    if (!loaded_ || copied == 0) ++faults;
  }

  std::function<void()> on_evict;       ///< While the driver takes the memory.
  std::atomic<std::size_t> copied{64};  ///< Blocks whose copies are done after a load.
  std::atomic<bool> late{false};        ///< The next look finds nothing, and the one after it all.
  std::atomic<bool> fail{false};
  std::atomic<bool> lost{false};  ///< Each use finds that the device is gone.
  std::atomic<int> running{0};
  std::atomic<int> loads{0};
  std::atomic<int> evictions{0};
  std::atomic<int> faults{0};

 private:
  FakeDevice& device_;
  const std::uint64_t bytes_;
  const std::size_t blocks_;
  std::atomic<bool> loaded_{false};
};

}  // namespace sluice::server
