#pragma once
#include <string_view>

/// How programs are kept from reaching the driver past the hooks.
namespace sluice::intercept {

/// What a program that asked for `name` and was given `found` is to get: our hook if `found` is
/// the real entry of a hook, else `found`. Notes work entries that are not hooked.
void* substitute(std::string_view name, void* found) noexcept;

}  // namespace sluice::intercept
