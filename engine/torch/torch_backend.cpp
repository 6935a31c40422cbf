#include "engine/torch/torch_backend.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/torch/captured_network.hpp"
#include "engine/torch/cuda_device.hpp"
#include "engine/torch/input.hpp"
#include "engine/torch/job_range.hpp"
#include "engine/torch/output_digest.hpp"
#include "engine/torch/torch_error.hpp"

namespace sluice::engine {
namespace {

void be_deterministic() {
  auto& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  // An operator without a deterministic form only warns; the digests show whether this matters.
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
}

}  // namespace

TorchBackend::TorchBackend(const ModelSpec& model, StoredModel stored, const c10::Device& device,
                           const std::string& digest_file)
    : model_(model), stored_(std::move(stored)), device_(device) {
  if (!digest_file.empty()) {
    be_deterministic();
    digests_.emplace(digest_file);
  }
  guarded([this] { load(); });
}

template <class Step>
void TorchBackend::guarded(Step step) const {
  try {
    step();
  } catch (const base::RunError&) {
    throw;
  } catch (const std::exception& error) {
    rethrow_torch_error(error, fmt::format("{} (input {})", stored_.file, input_shape_));
  }
}

void TorchBackend::load() {
  if (device_.is_cuda()) use_gpu(device_);
  const bool capturing = model_.cuda_graph && device_.is_cuda();
  if (capturing) use_side_stream();
  const at::Tensor batch = make_input(model_, stored_, device_);
  input_shape_ = fmt::format("{}", fmt::join(batch.sizes(), "x"));
  network_ =
      stored_.format == "aoti" ? load_compiled(stored_, {batch}) : load_scripted(stored_, batch);
  if (capturing) {
    network_ = capture(std::move(network_));
    return;
  }
  // TorchScript compiles in the second run what it profiled in the first. On a CPU nothing is
  // measured, so warm-up runs would only cost time.
  constexpr int kWarmUps = 3;
  for (int i = 0; device_.is_cuda() && i < kWarmUps; ++i) outputs_ = network_->run();
}

std::string TorchBackend::describe() const {
  return fmt::format(
      "{} {}, input {} of {}, {} of torch {}{}", stored_.format, stored_.file, input_shape_,
      model_.input_file_path.empty() ? "synthetic" : model_.input_file_path, stored_.dtype,
      stored_.torch_version, model_.cuda_graph && device_.is_cuda() ? ", as one CUDA graph" : "");
}

void TorchBackend::launch_job() {
  begin_job_range();
  guarded([this] { outputs_ = network_->run(); });
}

void TorchBackend::wait_for_job() {
  if (device_.is_cuda()) guarded([] { synchronise_stream(); });
  end_job_range();
}

void TorchBackend::after_job() {
  if (digests_) digests_->write(fmt::format("{} {}\n", jobs_, digest_of(outputs_)));
  ++jobs_;
}

Backend::Memory TorchBackend::peak_memory() const {
  return device_.is_cuda() ? peak_gpu_memory(device_) : Memory{};
}

}  // namespace sluice::engine
