#pragma once
#include <sched.h>
#include <time.h>

#include "base/clock.hpp"
#include "intercept/driver/driver.hpp"
#include "intercept/driver/threads.hpp"

/// What our own calls of the driver must respect: captures, streams that end, and programs that
/// wait for their own later launch.
namespace sluice::intercept {

/// While an object of this class lives, the calling thread may make driver calls that would
/// otherwise break a capture. In the default capture mode, an event query or an allocation by any
/// thread breaks the captures of all threads.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() noexcept {
    if (driver().cuThreadExchangeStreamCaptureMode != nullptr) {
      driver().cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// A query of a stream that one of our threads has sent to the driver and that is not answered yet.
/// A query may take long: the driver blocks a query of a stream whose queue is full behind a wait.
/// So no lock is held during a query. Only a thread that is about to end the stream, its context or
/// a capture waits for the answer (QueryBan).
class DriverQuery {
 public:
  /// The object is false, and the driver must not be queried, while a thread of the program holds a
  /// QueryBan about this stream or context, or while as many queries as there are notes are under
  /// way.
  DriverQuery(CUcontext context, CUstream stream) noexcept;
  /// Whether another thread's query of the stream is under way.
  [[nodiscard]] static bool is_under_way(CUcontext context, CUstream stream) noexcept;
  /// For a call that is about no stream: only a thread that ends the context waits for it.
  explicit DriverQuery(CUcontext context) noexcept : DriverQuery(context, kNoStream) {}
  [[nodiscard]] static bool is_under_way(CUcontext context) noexcept {
    return is_under_way(context, kNoStream);
  }
  ~DriverQuery();
  DriverQuery(const DriverQuery&) = delete;
  DriverQuery& operator=(const DriverQuery&) = delete;
  explicit operator bool() const noexcept { return note_ != nullptr; }

 private:
  static inline const auto kNoStream = reinterpret_cast<CUstream>(~std::uintptr_t{0});
  QueryNote* note_ = nullptr;
};

/// No conflicting query begins until lift(): none of this stream or of the legacy stream (which
/// includes all streams), or none in this context (null: in any context). Other queries go on,
/// because the program's call may block. Making one waits, for at most 5 s, until each conflicting
/// query has been answered.
///
/// The thread may be cancelled before lift(): no destructor runs, and the ban of a thread that no
/// longer exists is void.
class CancellableBan {
 public:
  [[nodiscard]] static CancellableBan about_stream(CUstream stream) noexcept;
  [[nodiscard]] static CancellableBan about_context(CUcontext context) noexcept;
  void lift() noexcept;

 private:
  CancellableBan(BanNote::About about, CUcontext context, CUstream stream) noexcept;
  BanNote* note_;         ///< Null: all queries are forbidden, and the thread cannot be cancelled.
  int cancel_state_ = 0;  ///< What it was before.
};

/// The same for a thread that cannot be cancelled: lifted when the object ends.
class QueryBan {
 public:
  static QueryBan about_stream(CUstream stream) noexcept {
    return QueryBan(CancellableBan::about_stream(stream));
  }
  static QueryBan about_context(CUcontext context) noexcept {
    return QueryBan(CancellableBan::about_context(context));
  }
  ~QueryBan() { ban_.lift(); }
  QueryBan(const QueryBan&) = delete;
  QueryBan& operator=(const QueryBan&) = delete;

 private:
  explicit QueryBan(const CancellableBan& ban) noexcept : ban_(ban) {}
  CancellableBan ban_;
};

/// For a forked child, in which neither the threads that queried nor those that banned queries
/// exist.
void forget_queries_in_child() noexcept;

/// At exit, because the driver is about to be torn down. Waits for at most 100 ms for queries that
/// are under way.
void forbid_queries_for_good() noexcept;

enum class Waited { kDone, kFailed, kTooLong };

/// No wait on the driver may be unbounded: the program may be waiting for its own later launch.
inline constexpr std::uint64_t kLongestDriverWaitNs = 5'000'000'000;

/// Calls `query` (a cuStreamQuery or cuEventQuery) until it reports success, for at most
/// `longest_ns`. Time during which `excused` returns true does not count. Spins first, because
/// every microsecond of reaction time is added to the sync point; then yields; then sleeps.
template <class Query, class Excused>
Waited wait_for_driver(Query query, Excused excused,
                       std::uint64_t longest_ns = kLongestDriverWaitNs) noexcept {
  constexpr std::uint64_t kSpinNs = 50'000;
  constexpr std::uint64_t kYieldNs = 500'000;
  const RelaxedCapture relaxed;
  const NoCancel whole;
  const std::uint64_t begin = base::monotonic_ns();
  std::uint64_t last = begin;
  std::uint64_t excused_ns = 0;
  for (;;) {
    const CUresult state = query();
    if (state == CUDA_SUCCESS) return Waited::kDone;
    if (state != CUDA_ERROR_NOT_READY) return Waited::kFailed;
    const std::uint64_t now = base::monotonic_ns();
    if (excused()) excused_ns += now - last;
    last = now;
    const std::uint64_t waited = now - begin;
    if (waited - excused_ns > longest_ns) return Waited::kTooLong;
    if (waited > kYieldNs) {
      const timespec nap{0, 50'000};
      nanosleep(&nap, nullptr);
    } else if (waited > kSpinNs) {
      sched_yield();
    }
  }
}

}  // namespace sluice::intercept
