#include "controller/subordinate_users.hpp"

#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/user_name.hpp"

namespace sluice::controller {
namespace {

/// A name or a number, as the file may have both.
std::optional<uid_t> user_in(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    return base::find_user(text);
  }
  uid_t uid = 0;
  return std::istringstream(text) >> uid ? std::optional(uid) : std::nullopt;
}

}  // namespace

SubordinateUsers SubordinateUsers::load(const std::string& file) {
  SubordinateUsers users;
  std::map<std::string, std::optional<uid_t>> known;  // a user may have many lines
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    char colon = 0;
    Range range{};
    if (!std::getline(fields, name, ':')) continue;
    if (!(fields >> range.first >> colon >> range.count) || colon != ':') continue;
    const auto [user, is_new] = known.try_emplace(name);
    if (is_new) user->second = user_in(name);
    range.owner = user->second.value_or(0);
    if (range.owner != 0) users.ranges_.push_back(range);
  }
  return users;
}

uid_t SubordinateUsers::owner_of(uid_t uid) const noexcept {
  for (const Range& range : ranges_) {
    // An id below the first wraps around, to more than any count.
    if (uid != 0 && uid - range.first < range.count) return range.owner;
  }
  return uid;
}

}  // namespace sluice::controller
