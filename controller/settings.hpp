#pragma once
#include <string>

#include "controller/admission.hpp"
#include "shm/board.hpp"
#include "shm/messages.hpp"

/// What a client asks for itself, and what `sluice set` changes: policy, target, time slice, weight
/// and what it gives. Priorities and limits of memory need more than the request: see registry.cpp
/// and memory_limits.hpp.
namespace sluice::controller {

/// What is wrong with a value of the request, also with its priority and its limit of memory; empty
/// if nothing is. A kSet request may keep what is.
[[nodiscard]] std::string fault_of_settings(const shm::Request& request);

/// Of a new client, whose request has no fault. `notice`, if it is empty: what of it is refused.
void begin_settings(shm::Slot& slot, const shm::Request& request, const Terms& terms,
                    std::string& notice);

/// Why these terms do not allow the weight, the time slice or the give of a change; empty if they
/// do.
[[nodiscard]] std::string fault_of_own_terms(const shm::Request& request, const Terms& terms);

/// The same for a request that may keep what is. Returns the changes for the log: ", NAME OLD ->
/// NEW" each.
[[nodiscard]] std::string change_settings(shm::Slot& slot, const shm::Request& request);

}  // namespace sluice::controller
