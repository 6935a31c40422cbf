#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "engine/memory/arena.hpp"
#include "engine/memory/host_copy.hpp"
#include "engine/weights.hpp"

namespace sluice::engine {

/// Weights in an arena, with a copy in host memory from which they come back block by block.
class ArenaWeights : public Weights {
 public:
  /// block_ends: where the weights of each block end; block i begins where block i-1 ends. A
  /// model's weights begin without device memory. Throws as MemoryDriver::check().
  ArenaWeights(std::shared_ptr<const DeviceContext> context, Placement placement,
               std::vector<std::uint64_t> block_ends);
  ~ArenaWeights() override;

  /// Settles what load() copies, once, before the first load(). As shared_host_copy().
  void fill(const std::string& key, const std::function<void(std::span<std::byte>)>& fill) {
    host_ = shared_host_copy(context_, key, block_ends_.back(), fill);
  }

  [[nodiscard]] std::uint64_t bytes() const override { return arena_.bytes(); }
  [[nodiscard]] std::size_t blocks() const override { return block_ends_.size(); }
  void load() override;
  [[nodiscard]] std::size_t loaded_blocks() override;
  void evict() override;

  /// Waits until all weights are in.
  void wait() const;
  [[nodiscard]] Placement placement() const { return arena_.placement(); }
  /// As Arena::address().
  [[nodiscard]] CUdeviceptr address() const { return arena_.address(); }
  /// Makes `stream` wait until the weights of a block are in. Costs nothing once all are. Before
  /// load() it throws base::RunError: the block would read unmapped memory and end the context.
  void wait_for_block(CUstream stream, std::size_t block);

 private:
  void copy_block(std::size_t block);

  std::shared_ptr<const DeviceContext> context_;
  Arena arena_;
  std::vector<std::uint64_t> block_ends_;
  std::shared_ptr<const HostCopy> host_;
  CUstream copies_ = nullptr;
  std::vector<CUevent> copied_;  ///< Of each block.
  std::atomic<bool> loaded_{false};
  std::atomic<bool> complete_{false};  ///< All weights are known to be in.
};

}  // namespace sluice::engine
