#include "base/session.hpp"

#include <algorithm>

namespace sluice::base {

bool valid_session_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 32 || name.front() == '.' || name.back() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

}  // namespace sluice::base
