#include "intercept/kick.hpp"

#include "intercept/capture.hpp"
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

/// In the current context.
bool Kick::prepare() noexcept {
  if (nothing_ != nullptr) return true;
  const Driver& calls = driver();
  CUmodule module = nullptr;
  if (calls.cuModuleLoadData == nullptr || calls.cuStreamCreate == nullptr) return false;
  if (stream_ == nullptr &&
      calls.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    stream_ = nullptr;
    return false;
  }
  const bool made = calls.cuModuleLoadData(&module, kNothing) == CUDA_SUCCESS &&
                    calls.cuModuleGetFunction(&nothing_, module, "sluice_kick") == CUDA_SUCCESS;
  if (!made) nothing_ = nullptr;
  return made;
}

void Kick::use(bool launch) noexcept {
  const CUcontext context = primary_context(device_);
  if (context == nullptr || !primary_is_active(device_)) return;
  const Question question(context, stream_);
  if (!question) return;
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
}

}  // namespace sluice::intercept
