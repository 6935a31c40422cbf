#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The session as text. Lines fit `columns`, from 80 on.
std::string status_text(const shm::Snapshot& snapshot, const std::string& session,
                        std::size_t columns = 80);
/// Whether anything is known of a gain. Nobody counts without a controller.
bool has_gain(const shm::Snapshot& snapshot);
/// "since 09:00: critical p99 1.10 x alone (target kept 99.2 %), GPU busy ~83 %, ..." in one line,
/// or in several where it needs more than `columns`. Empty while nothing is known
/// (docs/reference/gain.md).
std::vector<std::string> gain_notes(const shm::Snapshot& snapshot, std::size_t columns);
/// Launches by client and driver entry.
std::string coverage_text(const shm::Snapshot& snapshot);
/// Everything in the snapshot, with the coverage.
std::string status_json(const shm::Snapshot& snapshot, const std::string& session);

/// Why the policy in force is not the policy that was asked for.
std::string policy_note(const shm::ClientSnapshot& client);

/// The warning that a client with policy none slows the others down; empty if it does not.
std::string ungated_note(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client);

/// That waits on the driver took too long and were skipped; empty if none was.
std::string skipped_waits_note(const shm::ClientSnapshot& client);

/// What is set for its time slice, or why not; empty if that is the ordinary case.
std::string slice_note(const shm::ClientSnapshot& client);
std::string turn_note(const shm::ClientSnapshot& client);
/// When its jobs close the gates below; empty: at once, or as a target says.
std::string close_note(const shm::ClientSnapshot& client);
/// What the steps of a program that is never idle take, and when gates open in them; empty if it
/// has none.
std::string steps_note(const shm::ClientSnapshot& client);
/// "gives 3.1 of 5 %: gates close late (1.2 %), windows (1.9 %)": by how much its jobs and steps
/// took longer in the last minute; empty while nothing is known, and for a client that has held
/// nobody.
std::string give_note(const shm::ClientSnapshot& client);
/// How long its jobs or steps wait for the GPU; empty for a program that hardly waits: it may poll,
/// and then its waits are not seen.
std::string waits_note(const shm::ClientSnapshot& client);
/// Whether it is a client of an MPS daemon, how wide, and with whom it takes turns because of that;
/// empty for a program that is not, next to none that is.
std::string mps_note(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client);
std::string_view mps_mode_name(shm::MpsWord::Mode mode);
std::string_view close_state_name(shm::CloseState state);

/// A line for each process that uses a GPU of the session without a slot, the largest first; the
/// last lines count the others. A line fits `columns`, from 80 on, unless its numbers are long.
std::vector<std::string> outside_notes(const shm::Snapshot& snapshot, std::size_t columns);

/// A line for each reason why launches of the client passed ungated: how many, and what to do after
/// the last "; ".
std::vector<std::string> bypass_notes(const shm::ClientSnapshot& client);

/// How many launches of the session went past the gates; why stands below each client. Empty before
/// the first launch.
std::string launches_note(const shm::Snapshot& snapshot);

/// What passes by the hooks; for a client with unhooked_lookups.
std::string unhooked_note(const shm::ClientSnapshot& client);

/// The state of a client as a cell: "active 12ms"; "open 12ms" while its job leaves the gates below
/// open.
std::string state_cell(const shm::ClientSnapshot& client);

/// "target p99=50ms: 99.4 % of 812 jobs in time; gates open for 63 % of their time"; empty without
/// a target.
std::string target_note(const shm::ClientSnapshot& client);

/// What a user should know about a target that is being learned or cannot be kept; else empty.
std::string target_warning(const shm::ClientSnapshot& client);

/// Lines about the use of the GPU: labels, GPU time, and who waited for whom. Only those that have
/// something to say.
std::vector<std::string> usage_notes(const shm::ClientSnapshot& client);

/// "memory 3.1 GiB of 4.0 GiB granted, limit 20.0 GiB; ordered to drop 3 ms ago"; empty if the
/// client holds no device memory, has no limit, and no broker cares for it.
std::string memory_note(const shm::MemorySnapshot& memory);

/// "12 MiB", "1.3 GiB"
std::string memory_text(std::uint64_t bytes);

/// "3 us", "12 ms", "1.3 s", "4 min"
std::string format_duration(std::uint64_t ns);

}  // namespace sluice::tools
