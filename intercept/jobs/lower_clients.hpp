#pragma once
#include <cstdint>

#include "intercept/client/client_slot.hpp"

/// Tells the clients of lower priority on the same device about a coming job.
namespace sluice::intercept {

/// GPU time from the end of lower work until the GPU works for this client.
[[nodiscard]] std::uint64_t handover_ns(const ClientSlot& client) noexcept;
/// How long before the start of a job the gates must close: the work that may then still run, and a
/// context switch. Real ns.
[[nodiscard]] std::uint64_t lead_of(const ClientSlot& client) noexcept;
/// The same, or 0 if no client below has a device policy. Then nothing is predicted, and the
/// published policies behave as published.
[[nodiscard]] std::uint64_t lead_if_wanted(const ClientSlot& client) noexcept;
[[nodiscard]] bool has_lower_clients(const ClientSlot& client) noexcept;

/// Writes the slack: the time left until the GPU must be free for a job that begins at `start_ns`.
/// Invalid from `until_ns` on. Real ns.
void tell_slack(const ClientSlot& client, std::uint64_t start_ns, std::uint64_t until_ns) noexcept;
/// Makes the slack unlimited: no job is near.
void tell_no_job(const ClientSlot& client) noexcept;

}  // namespace sluice::intercept
