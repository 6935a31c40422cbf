#pragma once
#include <string_view>

namespace sluice::intercept {

/// Whether `name` is a driver entry that gives the GPU work, hooked or not.
bool is_work_entry(std::string_view name) noexcept;

/// If `name` is a driver entry that gives the GPU work but is not in hooks.def (or is, under an
/// address that we do not know), counts the question, so that `sluice status` can show it.
void note_if_unhooked_work(std::string_view name) noexcept;

}  // namespace sluice::intercept
