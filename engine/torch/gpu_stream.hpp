#pragma once
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>

#include <string>

#include "engine/context_lost.hpp"
#include "engine/torch/torch_error.hpp"

namespace sluice::engine {

/// Whether GpuStream::run() has found the context of this process lost. From then on LibTorch must
/// not free pinned memory that the GPU has used: it throws from destructors, which ends the process
/// before the server has answered.
[[nodiscard]] bool context_lost() noexcept;

/// The stream of one model on a GPU. LibTorch's pool has 32 streams, which it gives out in turn:
/// the 33rd model would share one, and capturing it would capture the other model's work. Never the
/// default stream either: that cannot be captured, and other streams wait for it.
///
/// What was allocated on the stream must be freed before this object, and with the object LibTorch
/// returns its unused memory to the GPU. So everything that uses the stream shares it.
class GpuStream {
 public:
  /// Throws LibTorch's error if the GPU has no room for a stream.
  explicit GpuStream(const c10::Device& device);
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream();

  [[nodiscard]] const c10::cuda::CUDAStream& get() const { return stream_; }
  /// Waits for the work of the stream. Throws LibTorch's error.
  void wait() const { stream_.synchronize(); }

  /// Runs `work` with this stream as the current one. An error of LibTorch becomes base::RunError
  /// with `what` in front, or ContextLost if the device is unusable from now on.
  template <class Work>
  auto run(const std::string& what, const Work& work) const {
    if (context_lost()) throw ContextLost(what + ": the context was lost before");
    try {
      return in_torch(what, [&] {
        const c10::InferenceMode inference;
        const c10::cuda::CUDAStreamGuard on(stream_);
        return work();
      });
    } catch (const base::RunError& error) {
      if (is_lost()) throw ContextLost(error.what());
      throw;
    }
  }

 private:
  /// Whether an error has made the context unusable: then every later call on it fails too.
  [[nodiscard]] bool is_lost() const;

  c10::cuda::CUDAStream stream_;
};

/// Runs `work` on the stream, or on the CPU if there is none. Errors as in GpuStream::run().
template <class Work>
auto run_on(const GpuStream* stream, const std::string& what, const Work& work) {
  if (stream != nullptr) return stream->run(what, work);
  const c10::InferenceMode inference;
  return in_torch(what, work);
}

/// Returns what LibTorch's allocators keep for later to the GPU and the host. Waits for the GPU,
/// and for a StreamCapture of another thread, which it would break.
void release_unused_memory();

}  // namespace sluice::engine
