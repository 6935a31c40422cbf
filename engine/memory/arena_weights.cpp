#include "engine/memory/arena_weights.hpp"

#include "base/error.hpp"

namespace sluice::engine {

ArenaWeights::ArenaWeights(std::shared_ptr<const DeviceContext> context, Placement placement,
                           std::vector<std::uint64_t> block_ends)
    : context_(std::move(context)),
      arena_(context_, placement, block_ends.back()),
      block_ends_(std::move(block_ends)) {
  const DeviceContext::Current current(*context_);
  const MemoryDriver& driver = context_->driver();
  SLUICE_DRIVER(driver, cuStreamCreate(&copies_, CU_STREAM_NON_BLOCKING));
  for (std::size_t i = 0; i < block_ends_.size(); ++i) {
    SLUICE_DRIVER(driver, cuEventCreate(&copied_.emplace_back(), CU_EVENT_DISABLE_TIMING));
  }
}

ArenaWeights::~ArenaWeights() {
  try {
    evict();
    const DeviceContext::Current current(*context_);
    for (CUevent event : copied_) context_->driver().cuEventDestroy(event);
    context_->driver().cuStreamDestroy(copies_);
  } catch (const base::RunError&) {
    // Only with a lost context. The end of the process frees everything.
  }
}

void ArenaWeights::load() {
  if (loaded_) return;
  arena_.take();
  const DeviceContext::Current current(*context_);
  try {
    for (std::size_t block = 0; block < block_ends_.size(); ++block) copy_block(block);
  } catch (const base::RunError&) {
    context_->driver().cuStreamSynchronize(copies_);
    arena_.give_back();
    throw;
  }
  loaded_ = true;
}

void ArenaWeights::copy_block(std::size_t block) {
  const MemoryDriver& driver = context_->driver();
  const std::uint64_t begin = block == 0 ? 0 : block_ends_[block - 1];
  const std::uint64_t bytes = block_ends_[block] - begin;
  if (bytes > 0) {
    SLUICE_DRIVER(driver, cuMemcpyHtoDAsync(arena_.address() + begin, host_->bytes().data() + begin,
                                            bytes, copies_));
  }
  SLUICE_DRIVER(driver, cuEventRecord(copied_[block], copies_));
}

std::size_t ArenaWeights::loaded_blocks() {
  if (!loaded_) return 0;
  if (complete_) return copied_.size();
  const DeviceContext::Current current(*context_);
  for (std::size_t block = 0; block < copied_.size(); ++block) {
    const CUresult result = context_->driver().cuEventQuery(copied_[block]);
    if (result == CUDA_ERROR_NOT_READY) return block;
    context_->driver().check(result, "cuEventQuery");
  }
  complete_ = true;
  return copied_.size();
}

void ArenaWeights::wait_for_block(CUstream stream, std::size_t block) {
  if (complete_) return;
  if (!loaded_) throw base::RunError("a block was launched before its weights were loaded");
  SLUICE_DRIVER(context_->driver(), cuStreamWaitEvent(stream, copied_.at(block), 0));
}

void ArenaWeights::wait() const {
  const DeviceContext::Current current(*context_);
  SLUICE_DRIVER(context_->driver(), cuStreamSynchronize(copies_));
}

void ArenaWeights::evict() {
  if (!loaded_) return;
  wait();
  loaded_ = false;
  complete_ = false;
  arena_.give_back();
}

}  // namespace sluice::engine
