#pragma once
#include <string_view>

/// Keeps programs from reaching the driver without the hooks.
namespace sluice::intercept {

/// What to return to a program that looked up `name` when the driver's answer is `found`: our hook
/// if `found` is the real entry of a hook, otherwise `found`. Also records entries that give the
/// GPU work, or begin a capture, and have no hook.
void* substitute(std::string_view name, void* found) noexcept;

}  // namespace sluice::intercept
