#pragma once
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

struct Note;

/// A question about a stream that a thread of ours (the one that polls, the one of notices) has put
/// to the driver and that is not yet answered. It may take long: asked about a stream whose queue
/// is full behind a wait, the driver blocks. So no lock is held over it, and nobody waits for the
/// answer but who is about to end what it is about. A launch that destroys the events of threads
/// that have ended asks in the same sense: their context must not end meanwhile.
class DriverQuery {
 public:
  /// False, and nothing may be asked, while some thread of the program ends or captures something,
  /// or three others ask.
  DriverQuery(CUcontext context, CUstream stream) noexcept;
  ~DriverQuery();
  DriverQuery(const DriverQuery&) = delete;
  DriverQuery& operator=(const DriverQuery&) = delete;
  explicit operator bool() const noexcept { return note_ != nullptr; }

 private:
  Note* note_ = nullptr;
};

/// While it lives no question is asked. The constructor waits, 5 s at most, for the answer to one
/// that is in the way: about this stream (or the legacy stream, which sees them all), or about
/// this context; null means any.
class QueryBan {
 public:
  static QueryBan about_stream(CUstream stream) noexcept;
  static QueryBan about_context(CUcontext context) noexcept;
  ~QueryBan();
  QueryBan(const QueryBan&) = delete;
  QueryBan& operator=(const QueryBan&) = delete;

 private:
  template <class InTheWay>
  explicit QueryBan(InTheWay in_the_way) noexcept;
};

/// In a forked child: the threads that asked, and those that forbade it, do not exist there.
void forget_queries_in_child() noexcept;

/// At exit: the driver is taken down under whoever is inside it. Waits 100 ms at most for one that
/// is.
void forbid_queries_for_good() noexcept;

}  // namespace sluice::intercept
