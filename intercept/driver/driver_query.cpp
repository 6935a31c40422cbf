#include "intercept/driver/driver_query.hpp"

#include <pthread.h>

#include <algorithm>

namespace sluice::intercept {
namespace {

using About = BanNote::About;

/// Null if all are taken.
QueryNote* take_query_note() noexcept {
  auto& notes = g_process.query_notes;
  const auto free = std::find_if(notes.begin(), notes.end(),
                                 [](auto& note) { return !note.taken.exchange(true); });
  return free == notes.end() ? nullptr : &*free;
}

/// The same. A note of a thread that was cancelled is free.
BanNote* take_ban_note() noexcept {
  auto& notes = g_process.ban_notes;
  const auto free = std::find_if(notes.begin(), notes.end(), [](BanNote& note) {
    pid_t before = note.thread.load();
    const bool taken = before != 0 && !ThreadMarks::is_gone(before);
    return !taken && note.thread.compare_exchange_strong(before, thread_id());
  });
  return free == notes.end() ? nullptr : &*free;
}

bool conflict(const BanNote& ban, CUcontext context, CUstream stream) noexcept {
  switch (ban.about.load()) {
    case About::kStream:
      return stream == ban.stream.load() || stream == nullptr || stream == CU_STREAM_LEGACY;
    case About::kContext: {
      const CUcontext ending = ban.context.load();
      return ending == nullptr || ending == context;
    }
    case About::kNothing:
      break;
  }
  return false;
}

bool is_forbidden(CUcontext context, CUstream stream) noexcept {
  const auto& bans = g_process.ban_notes;
  return g_process.queries_forbidden.load() != 0 ||
         std::any_of(bans.begin(), bans.end(), [=](const BanNote& ban) {
           return conflict(ban, context, stream) && !ThreadMarks::is_gone(ban.thread.load());
         });
}

/// Waits for queries that are under way.
template <class InTheWay>
void await_queries(InTheWay in_the_way, std::uint64_t longest_ns) noexcept {
  const auto waits_for = [in_the_way](const QueryNote& note) {
    return note.asking.load() && in_the_way(note);
  };
  const auto& notes = g_process.query_notes;
  nap_while([&] { return std::any_of(notes.begin(), notes.end(), waits_for); }, longest_ns);
}

bool any_query(const QueryNote& /*note*/) noexcept { return true; }

}  // namespace

DriverQuery::DriverQuery(CUcontext context, CUstream stream) noexcept {
  QueryNote* const free = take_query_note();
  if (free == nullptr) return;
  free->context.store(context);
  free->stream.store(stream);
  free->asking.store(true);
  if (!is_forbidden(context, stream)) {
    note_ = free;
    return;
  }
  free->asking.store(false);
  free->taken.store(false);
}

bool DriverQuery::is_under_way(CUcontext context, CUstream stream) noexcept {
  const auto& notes = g_process.query_notes;
  return std::any_of(notes.begin(), notes.end(), [=](const QueryNote& note) {
    return note.asking.load() && note.context.load() == context && note.stream.load() == stream;
  });
}

DriverQuery::~DriverQuery() {
  if (note_ == nullptr) return;
  note_->asking.store(false);
  note_->taken.store(false);
}

void forget_queries_in_child() noexcept {
  g_process.queries_forbidden.store(0);
  for (QueryNote& note : g_process.query_notes) {
    note.asking.store(false);
    note.taken.store(false);
  }
  for (BanNote& ban : g_process.ban_notes) {
    ban.about.store(About::kNothing);
    ban.thread.store(0);
  }
}

void forbid_queries_for_good() noexcept {
  constexpr std::uint64_t kLongestNs = 100'000'000;
  g_process.queries_forbidden.fetch_add(1);
  await_queries(any_query, kLongestNs);
}

CancellableBan::CancellableBan(About about, CUcontext context, CUstream stream) noexcept
    : note_(take_ban_note()) {
  if (note_ == nullptr) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    g_process.queries_forbidden.fetch_add(1);
    await_queries(any_query, kLongestDriverWaitNs);
    return;
  }
  note_->context.store(context);
  note_->stream.store(stream);
  note_->about.store(about);
  await_queries(
      [this](const QueryNote& query) {
        return conflict(*note_, query.context.load(), query.stream.load());
      },
      kLongestDriverWaitNs);
}

CancellableBan CancellableBan::about_stream(CUstream stream) noexcept {
  return {About::kStream, nullptr, stream};
}

CancellableBan CancellableBan::about_context(CUcontext context) noexcept {
  return {About::kContext, context, nullptr};
}

void CancellableBan::lift() noexcept {
  if (note_ == nullptr) {
    g_process.queries_forbidden.fetch_sub(1);
    pthread_setcancelstate(cancel_state_, nullptr);
    return;
  }
  note_->about.store(About::kNothing);
  note_->thread.store(0);
}

}  // namespace sluice::intercept
