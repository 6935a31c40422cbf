#pragma once
#include "shm/board.hpp"
#include "shm/messages.hpp"

/// How a reader says what other clients write to the board themselves. It keeps a Slot in private
/// memory, of which it uses the words of an owner, and reports them on each tick. The node service
/// copies them to the board. docs/reference/protocol.md lists every word.
namespace sluice::shm {

/// The words of a client that has just got `slot`: its private ones begin where the board is.
void begin_words(Slot& words, const Slot& slot) noexcept;

/// For the reader. The state is that of `words.info`. Does not allocate.
void fill_report(Report& report, const Slot& words) noexcept;

/// For the node service: copies what no rule reads, or what concerns only the time of the sender,
/// to its slot. The caller acts on the other fields.
void copy_words(const Report& report, Slot& slot) noexcept;

/// The job counter of a slot after a report. It never goes back, because `waived` names jobs by it;
/// a report that would make it jump is ignored.
[[nodiscard]] std::uint64_t job_after(std::uint64_t job, const Report& report) noexcept;

}  // namespace sluice::shm
