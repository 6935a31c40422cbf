#pragma once
#include <ATen/cuda/CUDAGraph.h>

#include <memory>
#include <mutex>

namespace sluice::engine {

/// Destroys a graph while no other thread makes or destroys one.
struct DestroyGraph {
  void operator()(at::cuda::CUDAGraph* graph) const;
};
using Graph = std::unique_ptr<at::cuda::CUDAGraph, DestroyGraph>;

/// A capture of the current stream into a CUDA graph, from the constructor to end(). Without end(),
/// because the captured work failed, the destructor ends the capture: otherwise the stream and
/// LibTorch's allocator would go on capturing, and no model of the process could be loaded any
/// more.
class StreamCapture {
 public:
  /// `pool`: where the graph's memory comes from. Throws LibTorch's error.
  explicit StreamCapture(at::cuda::MempoolId_t pool);
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;
  ~StreamCapture();

  /// The graph of all work since the constructor. Throws LibTorch's error.
  [[nodiscard]] Graph end();

 private:
  void abandon();

  std::unique_lock<std::mutex> lock_;
  at::cuda::MempoolId_t pool_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_ = std::make_unique<at::cuda::CUDAGraph>();
};

/// Held while a graph is captured or destroyed: LibTorch keeps a list of all graphs without a
/// lock. Its allocators can return memory only while no thread captures.
[[nodiscard]] std::mutex& graph_changes();

}  // namespace sluice::engine
