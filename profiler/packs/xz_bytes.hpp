#pragma once
#include <string>
#include <string_view>

/// Whole files that are compressed by xz.
namespace sluice::profiler {

[[nodiscard]] bool is_xz(std::string_view bytes);
/// Throws base::RunError if there is no memory for it.
[[nodiscard]] std::string to_xz(std::string_view bytes);
/// Throws base::UsageError if the bytes are damaged, cut off, or have something behind their end.
[[nodiscard]] std::string from_xz(std::string_view bytes);

}  // namespace sluice::profiler
