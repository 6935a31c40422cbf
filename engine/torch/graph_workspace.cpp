#include "engine/torch/graph_workspace.hpp"

#include <ATen/cuda/CUDAGraph.h>

#include <map>

namespace sluice::engine {

GraphWorkspace::GraphWorkspace(const c10::Device& device)
    : stream_(device), pool_(at::cuda::graph_pool_handle()) {}

std::shared_ptr<GraphWorkspace> GraphWorkspace::shared(const c10::Device& device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, std::weak_ptr<GraphWorkspace>> workspaces;
  const std::lock_guard lock(mutex);
  auto& known = workspaces[device.index()];
  auto workspace = known.lock();
  if (!workspace) known = workspace = std::make_shared<GraphWorkspace>(device);
  return workspace;
}

GraphWorkspace::Lock::Lock(GraphWorkspace& workspace, const GpuStream& stream)
    : workspace_(workspace), stream_(stream), lock_(workspace.turns_) {
  workspace_.last_turn_.block(stream_.get());
}

GraphWorkspace::Lock::~Lock() {
  try {
    workspace_.last_turn_.record(stream_.get());
  } catch (const std::exception&) {
    // Only a lost context gets here, and the next call on the stream reports that.
  }
}

}  // namespace sluice::engine
