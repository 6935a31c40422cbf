#include "intercept/driver/driver_query.hpp"

#include <algorithm>

namespace sluice::intercept {

DriverQuery::DriverQuery(CUcontext context, CUstream stream) noexcept {
  auto& notes = g_process.query_notes;
  const auto free = std::find_if(notes.begin(), notes.end(),
                                 [](QueryNote& note) { return !note.taken.exchange(true); });
  if (free == notes.end()) return;
  free->context.store(context);
  free->stream.store(stream);
  free->asking.store(true);
  if (g_process.queries_forbidden.load() == 0) {
    note_ = &*free;
    return;
  }
  free->asking.store(false);
  free->taken.store(false);
}

DriverQuery::~DriverQuery() {
  if (note_ == nullptr) return;
  note_->asking.store(false);
  note_->taken.store(false);
}

namespace {

template <class InTheWay>
void forbid(InTheWay in_the_way, std::uint64_t longest_ns) noexcept {
  g_process.queries_forbidden.fetch_add(1);
  const auto waits_for = [in_the_way](const QueryNote& note) {
    return note.asking.load() && in_the_way(note);
  };
  const auto& notes = g_process.query_notes;
  nap_while([&] { return std::any_of(notes.begin(), notes.end(), waits_for); }, longest_ns);
}

}  // namespace

void forget_queries_in_child() noexcept {
  g_process.queries_forbidden.store(0);
  for (QueryNote& note : g_process.query_notes) {
    note.asking.store(false);
    note.taken.store(false);
  }
}

void forbid_queries_for_good() noexcept {
  constexpr std::uint64_t kLongestNs = 100'000'000;
  forbid([](const QueryNote&) { return true; }, kLongestNs);
}

template <class InTheWay>
QueryBan::QueryBan(InTheWay in_the_way) noexcept {
  forbid(in_the_way, kLongestDriverWaitNs);
}

QueryBan QueryBan::about_stream(CUstream stream) noexcept {
  return QueryBan([stream](const QueryNote& note) {
    const CUstream asked = note.stream.load();
    return asked == stream || asked == nullptr || asked == CU_STREAM_LEGACY;
  });
}

QueryBan QueryBan::about_context(CUcontext context) noexcept {
  return QueryBan([context](const QueryNote& note) {
    return context == nullptr || note.context.load() == context;
  });
}

QueryBan::~QueryBan() { g_process.queries_forbidden.fetch_sub(1); }

}  // namespace sluice::intercept
