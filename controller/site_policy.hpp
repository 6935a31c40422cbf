#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/json_node.hpp"
#include "controller/admission.hpp"
#include "shm/give.hpp"

namespace sluice::controller {

/// Who may use the node's board, and on what terms: docs/guide/users.md. The first rule that
/// matches decides. After the rules come root and the user of the service, who may ask for
/// everything, and then the default.
class SitePolicy {
 public:
  static constexpr const char* kFile = "/etc/sluice/node.json";

  /// Without rules.
  SitePolicy() = default;
  /// Throws base::UsageError with one line if the file cannot be read, can be changed by another
  /// user, or has a fault. An unknown user or group is a fault too, unless `skipped` is given: then
  /// its rule is left out, and `skipped` gets a line. May wait for a directory server, to look up
  /// names.
  static SitePolicy load(const std::string& file, std::vector<std::string>* skipped = nullptr);

  /// Reads the peer's cgroup if any rule names one. If it is not known then, the peer may ask for
  /// priority 0 only, and a rule for a cgroup that refuses, or that limits memory, holds for it.
  [[nodiscard]] Terms terms(const Peer& peer) const;

 private:
  struct Rule {
    std::optional<uid_t> user;
    std::optional<gid_t> group;
    std::string cgroup;  ///< A pattern of fnmatch(3), in which * also matches /. Empty: any.
    Terms terms;
  };
  static Rule rule_in(const base::JsonNode& node, const Terms& other, std::string& fault);
  static bool matches(const Rule& rule, const Peer& peer, const std::string& cgroup);
  [[nodiscard]] Terms first_match(const Peer& peer, const std::string& cgroup) const;

  std::vector<Rule> rules_;
  Terms default_{
      .max_priority = 0, .max_clients = 8, .max_weight = 1, .min_give = shm::kDefaultGive};
};

}  // namespace sluice::controller
