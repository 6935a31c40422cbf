#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace sluice::controller {

/// Which user has which subordinate ids: subuid(5). A program in a user namespace of that user may
/// run as any of them.
class SubordinateUsers {
 public:
  static constexpr const char* kFile = "/etc/subuid";

  /// Without ids.
  SubordinateUsers() = default;
  /// Lines that cannot be read, and unknown users, are left out. So are the ids of root: programs
  /// in its namespaces are not root. May wait for a directory server, to look up names.
  static SubordinateUsers load(const std::string& file);

  /// The user who has this id as a subordinate one; else the id itself.
  [[nodiscard]] uid_t owner_of(uid_t uid) const noexcept;

 private:
  struct Range {
    uid_t first;
    uid_t count;
    uid_t owner;
  };
  std::vector<Range> ranges_;
};

}  // namespace sluice::controller
