#include "intercept/question.hpp"

#include <time.h>

#include <atomic>

#include "intercept/driver_wait.hpp"
#include "shm/clock.hpp"

namespace sluice::intercept {
namespace {

// A question is noted before it looks at g_forbidden, and g_forbidden is raised before the note is
// looked at: so one of the two sees the other.
constinit std::atomic<int> g_forbidden{0};
constinit std::atomic<bool> g_asking{false};
constinit std::atomic<CUcontext> g_context{nullptr};
constinit std::atomic<CUstream> g_stream{nullptr};

}  // namespace

Question::Question(CUcontext context, CUstream stream) noexcept {
  g_context.store(context);
  g_stream.store(stream);
  g_asking.store(true);
  allowed_ = g_forbidden.load() == 0;
  if (!allowed_) g_asking.store(false);
}

Question::~Question() { g_asking.store(false); }

template <class InTheWay>
NoQuestions::NoQuestions(InTheWay in_the_way) noexcept {
  const NoCancel whole;
  g_forbidden.fetch_add(1);
  const std::uint64_t begin = shm::monotonic_ns();
  while (g_asking.load() && in_the_way() && shm::monotonic_ns() - begin < kLongestDriverWaitNs) {
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
}

NoQuestions NoQuestions::about_stream(CUstream stream) noexcept {
  return NoQuestions([stream] {
    const CUstream asked = g_stream.load();
    return asked == stream || asked == nullptr || asked == CU_STREAM_LEGACY;
  });
}

NoQuestions NoQuestions::about_context(CUcontext context) noexcept {
  return NoQuestions([context] { return context == nullptr || g_context.load() == context; });
}

NoQuestions::~NoQuestions() { g_forbidden.fetch_sub(1); }

}  // namespace sluice::intercept
