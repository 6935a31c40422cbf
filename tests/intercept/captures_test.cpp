// The list of open captures: for want of memory, and when streams and contexts end.
#include "intercept/pacing/captures.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

namespace {
bool g_no_memory = false;
bool g_capturing = false;
}  // namespace

void* operator new(std::size_t size) {
  void* const made = g_no_memory ? nullptr : std::malloc(size);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
// A sanitizer's own would not match the operator delete below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return g_no_memory ? nullptr : std::malloc(size);
}
// Not inlined: GCC takes an inlined free() for one that does not match (with a sanitizer).
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sluice::intercept {
namespace {

const auto kStream = reinterpret_cast<CUstream>(0x100);
const auto kContext = reinterpret_cast<CUcontext>(0xc0);
const auto kCurrent = reinterpret_cast<CUcontext>(0xc1);

CUresult is_stream_capturing(CUstream, CUstreamCaptureStatus* status) {
  *status = g_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult context_of_stream(CUstream, CUcontext* context) {
  *context = kContext;
  return CUDA_SUCCESS;
}
CUresult current(CUcontext* context) {
  *context = kCurrent;
  return CUDA_SUCCESS;
}

/// One test per process: want of memory is remembered for good.
class Captures : public testing::Test {
 protected:
  Captures() {
    g_process.driver.cuStreamIsCapturing = &is_stream_capturing;
    g_process.driver.cuStreamGetCtx = &context_of_stream;
    g_process.driver.cuCtxGetCurrent = &current;
    g_process.driver_ready.store(true);
  }
  static void begin() {
    g_capturing = true;
    capture_begun(kStream);
  }
};

// Prevents: the program ends with std::terminate, or launches into its capture are held.
TEST_F(Captures, ForWantOfMemoryEveryLaunchAsks) {
  ASSERT_FALSE(any_capture_open());
  g_no_memory = true;
  begin();
  captures_abandoned(captures_of(kStream));
  g_no_memory = false;
  EXPECT_TRUE(any_capture_open());
  EXPECT_TRUE(query_breaks_capture(kStream));
  g_capturing = false;
  capture_ended(kStream);
  EXPECT_TRUE(any_capture_open()) << "there may be others";
  EXPECT_FALSE(query_breaks_capture(kStream));
}

// Prevents: a query breaks a capture, because another context than that of its stream has ended.
TEST_F(Captures, ACaptureEndsWithTheContextOfItsStream) {
  begin();
  captures_abandoned(captures_of(ContextId{kCurrent}));
  EXPECT_TRUE(any_capture_open());
  captures_abandoned(captures_of(ContextId{kContext}));
  EXPECT_FALSE(any_capture_open());
  begin();
  captures_abandoned(captures_of(ContextId{}));
  EXPECT_FALSE(any_capture_open()) << "null: any context may have ended";
}

// Prevents: every launch asks the driver for good, because two calls were about to end a capture.
TEST_F(Captures, TheFirstOfTwoCallsThatEndACaptureForgetsIt) {
  begin();
  const auto by_context = captures_of(ContextId{kContext});
  const auto by_stream = captures_of(kStream);
  captures_abandoned(by_context);
  EXPECT_FALSE(any_capture_open());
  begin();  // another stream has the handle by now
  captures_abandoned(by_stream);
  EXPECT_TRUE(any_capture_open());
}

}  // namespace
}  // namespace sluice::intercept
