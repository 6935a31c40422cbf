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

/// In the current context. Tried once: where nothing can be compiled (CUDA_DISABLE_PTX_JIT, say)
/// each try would keep the driver busy beside a job.
bool Kick::prepare() noexcept {
  if (nothing_ != nullptr) return true;
  const Driver& calls = driver();
  if (hopeless_ || calls.cuModuleLoadData == nullptr || calls.cuModuleGetFunction == nullptr ||
      calls.cuStreamCreate == nullptr) {
    return false;
  }
  CUmodule module = nullptr;
  hopeless_ = calls.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
              calls.cuModuleLoadData(&module, kNothing) != CUDA_SUCCESS ||
              calls.cuModuleGetFunction(&nothing_, module, "sluice_kick") != CUDA_SUCCESS;
  if (hopeless_) nothing_ = nullptr;
  return !hopeless_;
}

bool Kick::is_ready() const noexcept { return nothing_ != nullptr || client_.under_mps(); }

/// A best-effort client that is held would cut into the job that holds it; and with a full queue
/// behind its gate the driver would block.
bool Kick::may_kick() const noexcept {
  return !client_.under_mps() && !client_.gate_closed() &&
         shm::SlotInfo::unpack(client_.slot().info.load()).priority != 0;
}

void Kick::use(bool launch) noexcept {
  const CUcontext context = primary_context(client_.device());
  if (context == nullptr || !may_kick()) return;
  // About a stream that is none of the program's: nobody but who ends the context waits for it.
  const Question question(context, reinterpret_cast<CUstream>(this));
  if (!question || !primary_is_active(client_.device())) return;
  const RelaxedCapture relaxed;
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return;
  context_ = context;
  if (prepare() && launch) {
    driver().cuLaunchKernel(nothing_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr);
  }
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
}

void Kick::forget_context(CUcontext context) noexcept {
  if (context != nullptr && context != context_) return;
  context_ = nullptr;
  stream_ = nullptr;
  nothing_ = nullptr;
  hopeless_ = false;
}

}  // namespace sluice::intercept
