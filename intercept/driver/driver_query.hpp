#pragma once
#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

struct Note;

/// A query of a stream that one of our threads has sent to the driver and that is not answered yet.
/// A query may take long: the driver blocks a query of a stream whose queue is full behind a wait.
/// So no lock is held during a query. Only a thread that is about to end the stream, the context or
/// a capture waits for the answer (QueryBan).
///
/// A launch that destroys the events of ended threads also takes a DriverQuery, so that their
/// context does not end meanwhile.
class DriverQuery {
 public:
  /// The object is false, and the driver must not be queried, while a thread of the program holds a
  /// QueryBan or while three other queries are under way.
  DriverQuery(CUcontext context, CUstream stream) noexcept;
  ~DriverQuery();
  DriverQuery(const DriverQuery&) = delete;
  DriverQuery& operator=(const DriverQuery&) = delete;
  explicit operator bool() const noexcept { return note_ != nullptr; }

 private:
  Note* note_ = nullptr;
};

/// No query begins while an object of this class lives. The constructor waits, for at most 5 s,
/// until each conflicting query has been answered: a query of this stream or of the legacy stream
/// (which includes all streams), or a query in this context (null: in any context).
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

/// For a forked child, in which neither the threads that queried nor those that banned queries
/// exist.
void forget_queries_in_child() noexcept;

/// At exit, because the driver is about to be torn down. Waits for at most 100 ms for queries that
/// are under way.
void forbid_queries_for_good() noexcept;

}  // namespace sluice::intercept
