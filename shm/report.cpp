#include "shm/report.hpp"

#include <atomic>

namespace sluice::shm {
namespace {

/// The words of Report::words, in their order.
template <class AnySlot, class Visit>
void for_each_word(AnySlot& slot, Visit visit) noexcept {
  visit(slot.job_since_ns);
  visit(slot.skipped_waits);
  visit(slot.unhooked_lookups);
  visit(slot.max_hold_opened);
  visit(slot.longest_launch_ns);
  visit(slot.ungated_graph_ns);
  visit(slot.unknown_launches);
  visit(slot.syncs);
  visit(slot.open_job);
  visit(slot.target);
  visit(slot.gpu_ns);
  visit(slot.gpu_bound_ns);
  visit(slot.target_total_ns);
  visit(slot.waited_for);
  visit(slot.busy_ns);
  visit(slot.slice_us);
  visit(slot.slice_state);
  visit(slot.gpu_share);
  visit(slot.job_times.ended);
  visit(slot.job_times.total_ns);
  for (auto& word : slot.job_times.buckets) visit(word);
  for (auto& word : slot.job_times.last.ns) visit(word);
  for (auto& entry : slot.entries) {
    for (auto& word : entry.words) visit(word);
  }
  visit(slot.memory.held);
  visit(slot.memory.peak);
  visit(slot.memory.base);
  visit(slot.memory.slope);
  visit(slot.memory.critical);
  visit(slot.memory.obedient);
  visit(slot.memory.refused);
  visit(slot.memory.refused_allocations);
  visit(slot.memory.dropped_ns);
  visit(slot.memory.drained_ns);
}

}  // namespace

void begin_words(Slot& words, const Slot& slot) noexcept {
  words.info.store(slot.info.load());
  words.job.store(slot.job.load());
  words.policy.store(slot.policy.load());
  words.memory.done.store(slot.memory.done.load());
}

void fill_report(Report& report, const Slot& words) noexcept {
  report.state = SlotInfo::unpack(words.info.load()).state;
  report.refuses = words.outranked.load() & kOrdered;
  report.job = words.job.load();
  report.policy = words.policy.load();
  report.done = words.memory.done.load();
  for (std::size_t i = 0; i < report.waived.size(); ++i) report.waived[i] = words.waived[i].load();
  report.unhooked_name = words.unhooked_name;
  std::size_t next = 0;
  for_each_word(words, [&](const auto& word) {
    if (next < report.words.size()) report.words[next] = word.load(std::memory_order_relaxed);
    ++next;
  });
}

void copy_words(const Report& report, Slot& slot) noexcept {
  std::size_t next = 0;
  for_each_word(slot, [&]<class Value>(std::atomic<Value>& word) {
    if (next < report.words.size()) word.store(static_cast<Value>(report.words[next]));
    ++next;
  });
  for (std::size_t i = 0; i < report.unhooked_name.size(); ++i) {
    const char c = report.unhooked_name[i];
    const bool printable = c >= ' ' && c != '\x7f';
    const bool last = i + 1 == report.unhooked_name.size();
    std::atomic_ref<char>(slot.unhooked_name[i])
        .store(c == '\0' || last ? '\0' : (printable ? c : '?'), std::memory_order_relaxed);
  }
}

std::uint64_t job_after(std::uint64_t job, const Report& report) noexcept {
  constexpr std::uint64_t kMostJobs = std::uint64_t{1} << 32U;
  return report.job - job < kMostJobs ? report.job : job;
}

}  // namespace sluice::shm
