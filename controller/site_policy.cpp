#include "controller/site_policy.hpp"

#include <fnmatch.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/json_node.hpp"

namespace sluice::controller {
namespace {

using base::JsonNode;

constexpr std::int64_t kHighestId = std::numeric_limits<uid_t>::max() - 1;

uid_t find_user(const std::string& name, const JsonNode& at) {
  std::array<char, 16384> text{};
  passwd entry{};
  passwd* found = nullptr;
  getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  if (found == nullptr) at.complain("this machine has no user '" + name + "'");
  return found->pw_uid;
}

gid_t find_group(const std::string& name, const JsonNode& at) {
  // A group entry names all members of the group.
  std::vector<char> text(1U << 20U);
  group entry{};
  group* found = nullptr;
  getgrnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  if (found == nullptr) at.complain("this machine has no group '" + name + "'");
  return found->gr_gid;
}

/// A name or a number.
template <class Find>
auto id_of(const JsonNode& node, Find find) -> decltype(find(std::string(), node)) {
  if (node.value().is_number()) {
    return static_cast<decltype(find(std::string(), node))>(node.as_integer(0, kHighestId));
  }
  return find(node.as_text(), node);
}

/// The terms in an object; those that it does not name are those of `other`.
Terms terms_in(const JsonNode& node, const Terms& other) {
  Terms terms = other;
  if (const auto admit = node.find("admit")) terms.admitted = admit->as_bool();
  if (const auto most = node.find("max_priority")) {
    terms.max_priority = static_cast<int>(most->as_integer(0, 255));
  }
  if (const auto most = node.find("max_clients")) {
    terms.max_clients = static_cast<int>(most->as_integer(0, shm::kSlots));
  }
  return terms;
}

/// Who can write the policy can give away every priority.
void refuse_file_of_others(const std::string& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) != 0) {
    throw base::UsageError(file + ": cannot be read: " + std::strerror(errno));
  }
  const bool ours = found.st_uid == 0 || found.st_uid == geteuid();
  if (!ours || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw base::UsageError(file +
                           ": another user can change it; make it root's, and writable by root "
                           "alone (chown root, chmod 644)");
  }
}

}  // namespace

SitePolicy SitePolicy::load(const std::string& file) {
  refuse_file_of_others(file);
  const nlohmann::json document = base::parse_json_file(file);
  const JsonNode root(file, document);
  root.expect_object({"default", "rules"});
  SitePolicy policy;
  if (const auto node = root.find("default")) {
    node->expect_object({"admit", "max_priority", "max_clients"});
    policy.default_ = terms_in(*node, policy.default_);
  }
  const auto rules = root.find("rules");
  if (!rules) return policy;
  for (const JsonNode& node : rules->elements("an array of rules")) {
    node.expect_object({"user", "group", "cgroup", "admit", "max_priority", "max_clients"});
    Rule rule;
    if (const auto user = node.find("user")) rule.user = id_of(*user, find_user);
    if (const auto group = node.find("group")) rule.group = id_of(*group, find_group);
    if (const auto cgroup = node.find("cgroup")) rule.cgroup = cgroup->as_text();
    if (!rule.user && !rule.group && rule.cgroup.empty()) {
      node.complain("a rule needs a user, a group or a cgroup");
    }
    rule.terms = terms_in(node, policy.default_);
    policy.rules_.push_back(std::move(rule));
  }
  return policy;
}

bool SitePolicy::matches(const Rule& rule, const Peer& peer, std::optional<std::string>& cgroup) {
  if (rule.user && *rule.user != peer.uid) return false;
  if (rule.group &&
      std::find(peer.groups.begin(), peer.groups.end(), *rule.group) == peer.groups.end()) {
    return false;
  }
  if (rule.cgroup.empty()) return true;
  if (!cgroup) cgroup = peer.process ? cgroup_of(*peer.process) : std::string();
  return !cgroup->empty() && fnmatch(rule.cgroup.c_str(), cgroup->c_str(), 0) == 0;
}

Terms SitePolicy::terms(const Peer& peer) const {
  std::optional<std::string> cgroup;
  for (const Rule& rule : rules_) {
    if (matches(rule, peer, cgroup)) return rule.terms;
  }
  return peer.uid == 0 || peer.uid == geteuid() ? Terms{} : default_;
}

}  // namespace sluice::controller
