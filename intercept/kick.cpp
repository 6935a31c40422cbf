#include "intercept/kick.hpp"

#include "intercept/capture.hpp"
#include "intercept/client.hpp"
#include "intercept/primary_context.hpp"
#include "intercept/question.hpp"

namespace sluice::intercept {
namespace {

constexpr const char* kNothing = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry sluice_kick() { ret; }
)";

}  // namespace

void Kick::make() noexcept {
  const Driver& calls = driver();
  const CUcontext context = primary_context(client_.device());
  const auto priority = shm::SlotInfo::unpack(client_.slot().info.load()).priority;
  if (context == nullptr || priority == 0 || client_.under_mps() ||
      calls.cuModuleLoadData == nullptr || calls.cuModuleGetFunction == nullptr ||
      calls.cuStreamCreate == nullptr || !primary_is_active(client_.device())) {
    return;
  }
  const RelaxedCapture relaxed;
  if (calls.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  // May fail: CUDA_DISABLE_PTX_JIT, say.
  if (calls.cuModuleLoadData(&module, kNothing) == CUDA_SUCCESS &&
      calls.cuModuleGetFunction(&nothing, module, "sluice_kick") == CUDA_SUCCESS &&
      calls.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    context_ = context;
    nothing_.store(nothing);
  }
  CUcontext popped = nullptr;
  calls.cuCtxPopCurrent_v2(&popped);
}

/// A client that is held would cut into the job that holds it; and with a full queue behind its
/// gate the driver would block. Its priority may have changed.
bool Kick::may_kick() const noexcept {
  return nothing_.load() != nullptr && !client_.gate_closed() &&
         shm::SlotInfo::unpack(client_.slot().info.load()).priority != 0;
}

void Kick::operator()() noexcept {
  if (!may_kick()) return;
  // About a stream that is none of the program's: nobody but who ends the context waits for it.
  const Question question(context_, stream_);
  const CUfunction nothing = nothing_.load();
  if (!question || nothing == nullptr || !primary_is_active(client_.device())) return;
  const RelaxedCapture relaxed;
  if (driver().cuCtxPushCurrent_v2(context_) != CUDA_SUCCESS) return;
  driver().cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
}

void Kick::forget_context(CUcontext context) noexcept {
  if (context == nullptr || context == context_) nothing_.store(nullptr);
}

}  // namespace sluice::intercept
