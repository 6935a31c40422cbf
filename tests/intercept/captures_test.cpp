// The list of open captures when there is no memory for it.
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
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sluice::intercept {
namespace {

CUresult is_stream_capturing(CUstream, CUstreamCaptureStatus* status) {
  *status = g_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// Prevents: the program ends with std::terminate, or launches into its capture are held.
TEST(Captures, ForWantOfMemoryEveryLaunchAsks) {
  g_process.driver.cuStreamIsCapturing = &is_stream_capturing;
  g_process.driver_ready.store(true);
  const auto stream = reinterpret_cast<CUstream>(0x100);
  ASSERT_FALSE(any_capture_open());
  g_capturing = g_no_memory = true;
  capture_begun(stream);
  captures_abandoned(captures_of(stream));
  g_no_memory = false;
  EXPECT_TRUE(any_capture_open());
  EXPECT_TRUE(query_breaks_capture(stream));
  g_capturing = false;
  capture_ended(stream);
  EXPECT_TRUE(any_capture_open()) << "there may be others";
  EXPECT_FALSE(query_breaks_capture(stream));
}

}  // namespace
}  // namespace sluice::intercept
