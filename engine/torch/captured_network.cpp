#include "engine/torch/captured_network.hpp"

#include "engine/torch/cuda_device.hpp"
#include "engine/torch/stream_capture.hpp"
#include "engine/torch/torch_error.hpp"

namespace sluice::engine {
namespace {

class CapturedNetwork : public Network {
 public:
  explicit CapturedNetwork(std::unique_ptr<Network> network) : network_(std::move(network)) {
    StreamCapture capture(at::cuda::graph_pool_handle());
    outputs_ = network_->run();
    graph_ = capture.end();
  }

  c10::IValue run() override {
    graph_->replay();
    return outputs_;
  }

 private:
  std::unique_ptr<Network> network_;
  Graph graph_;
  c10::IValue outputs_;  // in the graph's memory
};

}  // namespace

std::unique_ptr<Network> capture(std::unique_ptr<Network> network) {
  // Handles, workspaces and compiled kernels are created on first use, and cannot be created during
  // a capture.
  constexpr int kWarmUps = 3;
  for (int i = 0; i < kWarmUps; ++i) static_cast<void>(network->run());
  synchronise_stream();
  try {
    return std::make_unique<CapturedNetwork>(std::move(network));
  } catch (const std::exception& error) {
    rethrow_torch_error(error,
                        "the model cannot be captured into a CUDA graph (remove \"cuda_graph\")");
  }
}

}  // namespace sluice::engine
