#pragma once
#include <cstdint>

#include "intercept/client/client_slot.hpp"

/// The clients of lower priority on the device of a client: what a coming job means to them.
namespace sluice::intercept {

/// GPU time from the moment that the GPU is this client's to take until it works for it.
[[nodiscard]] std::uint64_t handover_ns(const ClientSlot& client) noexcept;
/// How long before the start of a job the gates must close, real ns: what may then still run, and
/// a context switch.
[[nodiscard]] std::uint64_t lead_of(const ClientSlot& client) noexcept;
/// The same, or 0 where a prediction is worth nothing: no client below is under policy device. The
/// published policies stay as they were published.
[[nodiscard]] std::uint64_t lead_if_wanted(const ClientSlot& client) noexcept;
[[nodiscard]] bool has_lower_clients(const ClientSlot& client) noexcept;

/// Tells them how much time is left until the GPU must be free for a job that begins at `start_ns`.
/// Void from `until_ns` on. Real ns.
void tell_slack(const ClientSlot& client, std::uint64_t start_ns, std::uint64_t until_ns) noexcept;
/// Tells them that no job is near.
void tell_no_job(const ClientSlot& client) noexcept;

}  // namespace sluice::intercept
