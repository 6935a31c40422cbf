#include "intercept/driver/driver_query.hpp"

#include <algorithm>
#include <array>
#include <atomic>

#include "intercept/driver/driver_wait.hpp"

namespace sluice::intercept {
/// One entry for each querying thread: with a shared entry, the end of one query would be taken for
/// the end of the other. The third entry is for launches that destroy the events of ended threads.
struct Note {
  std::atomic<bool> taken{false};
  std::atomic<bool> asking{false};
  std::atomic<CUcontext> context{nullptr};
  std::atomic<CUstream> stream{nullptr};
};

namespace {

// A query writes its note and then reads g_forbidden. A ban raises g_forbidden and then reads the
// notes. So at least one of the two sees the other.
constinit std::atomic<int> g_forbidden{0};
constinit std::array<Note, 3> g_notes{};

}  // namespace

DriverQuery::DriverQuery(CUcontext context, CUstream stream) noexcept {
  const auto free = std::find_if(g_notes.begin(), g_notes.end(),
                                 [](Note& note) { return !note.taken.exchange(true); });
  if (free == g_notes.end()) return;
  free->context.store(context);
  free->stream.store(stream);
  free->asking.store(true);
  if (g_forbidden.load() == 0) {
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
  g_forbidden.fetch_add(1);
  const auto waits_for = [in_the_way](const Note& note) {
    return note.asking.load() && in_the_way(note);
  };
  nap_while([&] { return std::any_of(g_notes.begin(), g_notes.end(), waits_for); }, longest_ns);
}

}  // namespace

void forget_queries_in_child() noexcept {
  g_forbidden.store(0);
  for (Note& note : g_notes) {
    note.asking.store(false);
    note.taken.store(false);
  }
}

void forbid_queries_for_good() noexcept {
  constexpr std::uint64_t kLongestNs = 100'000'000;
  forbid([](const Note&) { return true; }, kLongestNs);
}

template <class InTheWay>
QueryBan::QueryBan(InTheWay in_the_way) noexcept {
  forbid(in_the_way, kLongestDriverWaitNs);
}

QueryBan QueryBan::about_stream(CUstream stream) noexcept {
  return QueryBan([stream](const Note& note) {
    const CUstream asked = note.stream.load();
    return asked == stream || asked == nullptr || asked == CU_STREAM_LEGACY;
  });
}

QueryBan QueryBan::about_context(CUcontext context) noexcept {
  return QueryBan(
      [context](const Note& note) { return context == nullptr || note.context.load() == context; });
}

QueryBan::~QueryBan() { g_forbidden.fetch_sub(1); }

}  // namespace sluice::intercept
