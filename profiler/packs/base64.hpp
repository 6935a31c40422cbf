#pragma once
#include <string>
#include <string_view>

namespace sluice::profiler {

[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Throws base::UsageError if the text is not base64.
[[nodiscard]] std::string from_base64(std::string_view text);

}  // namespace sluice::profiler
