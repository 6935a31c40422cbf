#include "engine/torch/stream_capture.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

namespace sluice::engine {
namespace {

/// Runs a step of the clean-up. A step that has nothing to do throws.
template <class Step>
bool succeeds(const Step& step) {
  try {
    step();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

class NoWarnings : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

void DestroyGraph::operator()(at::cuda::CUDAGraph* graph) const {
  const std::lock_guard lock(graph_changes());
  const std::unique_ptr<at::cuda::CUDAGraph> destroyed(graph);
}

StreamCapture::StreamCapture(at::cuda::MempoolId_t pool) : lock_(graph_changes()), pool_(pool) {
  try {
    // Other threads may allocate memory and wait for events meanwhile.
    graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  } catch (const std::exception&) {
    abandon();
    throw;
  }
}

StreamCapture::~StreamCapture() {
  if (graph_) abandon();
}

Graph StreamCapture::end() {
  // LibTorch warns of a graph without nodes, which is what a block of views only is.
  NoWarnings quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  // On an error the destructor cleans up.
  graph_->capture_end();
  return Graph(graph_.release());
}

void StreamCapture::abandon() {
  if (succeeds([&] { graph_->capture_end(); })) return;
  // An invalid capture has ended in the driver, but not in the allocators.
  using namespace c10::cuda;
  const c10::DeviceIndex device = current_device();
  if (succeeds([&] { CUDACachingAllocator::endAllocateToPool(device, pool_); })) {
    succeeds([&] { CUDACachingAllocator::releasePool(device, pool_); });
  }
  auto* const host = at::getHostAllocator(at::kCUDA);
  if (succeeds([&] { host->end_allocate_to_pool(pool_); })) {
    succeeds([&] { host->release_pool(pool_); });
  }
}

std::mutex& graph_changes() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace sluice::engine
