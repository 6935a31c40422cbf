#include "controller/site_policy.hpp"

#include <fnmatch.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/json_node.hpp"
#include "base/user_name.hpp"
#include "shm/give.hpp"
#include "shm/memory_limit.hpp"
#include "shm/slice.hpp"

namespace sluice::controller {
namespace {

using base::JsonNode;

constexpr std::int64_t kHighestId = std::numeric_limits<uid_t>::max() - 1;

std::optional<gid_t> find_group(const std::string& name) {
  // A group entry names all members of the group.
  std::vector<char> text(1U << 20U);
  group entry{};
  group* found = nullptr;
  getgrnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  return found != nullptr ? std::optional(found->gr_gid) : std::nullopt;
}

/// A name or a number. An unknown name gives nothing, and a line in `fault`.
template <class Find>
std::optional<id_t> id_of(const JsonNode& node, const std::string& kind, Find find,
                          std::string& fault) {
  if (node.value().is_number()) return static_cast<id_t>(node.as_integer(0, kHighestId));
  const std::string name = node.as_text();
  const std::optional<id_t> found = find(name);
  if (!found) fault = "this machine has no " + kind + " '" + name + "'";
  return found;
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
  if (const auto most = node.find("max_memory")) {
    const auto limit = shm::parse_memory_limit(most->as_text());
    if (!limit) most->refuse(std::string(shm::kMemoryLimitForms));
    terms.max_memory = *limit == 0 ? shm::kNoLimit : *limit;
  }
  if (const auto most = node.find("max_weight")) {
    terms.max_weight = static_cast<std::uint32_t>(most->as_integer(1, shm::kMostWeight));
  }
  if (const auto most = node.find("max_slice")) {
    const auto slice = shm::parse_slice(most->as_text());
    if (!slice || *slice < shm::kDriversSliceUs || *slice == shm::kSliceOff) {
      most->refuse("a time from 2ms, the driver's slice, to 100ms");
    }
    terms.max_slice = *slice;
  }
  if (const auto least = node.find("min_give")) {
    const std::string text = least->as_text();
    const auto give = shm::parse_give(text);
    if (!give) least->refuse(std::string(shm::kGiveForms) + shm::give_hint(text, '"'));
    terms.min_give = *give;
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

SitePolicy::Rule SitePolicy::rule_in(const JsonNode& node, const Terms& other, std::string& fault) {
  node.expect_object({"user", "group", "cgroup", "admit", "max_priority", "max_clients",
                      "max_memory", "max_weight", "max_slice", "min_give"});
  Rule rule;
  const auto user = node.find("user");
  const auto group = node.find("group");
  if (user) rule.user = id_of(*user, "user", base::find_user, fault);
  if (group) rule.group = id_of(*group, "group", find_group, fault);
  if (const auto cgroup = node.find("cgroup")) rule.cgroup = cgroup->as_text();
  if (!user && !group && rule.cgroup.empty()) {
    node.complain("a rule needs a user, a group or a cgroup");
  }
  rule.terms = terms_in(node, other);
  return rule;
}

SitePolicy SitePolicy::load(const std::string& file, std::vector<std::string>* skipped) {
  refuse_file_of_others(file);
  const nlohmann::json document = base::parse_json_file(file);
  const JsonNode root(file, document);
  root.expect_object({"default", "rules"});
  SitePolicy policy;
  if (const auto node = root.find("default")) {
    node->expect_object({"admit", "max_priority", "max_clients", "max_memory", "max_weight",
                         "max_slice", "min_give"});
    policy.default_ = terms_in(*node, policy.default_);
  }
  const auto rules = root.find("rules");
  if (!rules) return policy;
  for (const JsonNode& node : rules->elements("an array of rules")) {
    std::string unknown;
    Rule rule = rule_in(node, policy.default_, unknown);
    if (unknown.empty()) {
      policy.rules_.push_back(std::move(rule));
    } else if (skipped != nullptr) {
      skipped->push_back(file + ": " + node.path() + ": " + unknown);
    } else {
      node.complain(unknown);
    }
  }
  return policy;
}

bool SitePolicy::matches(const Rule& rule, const Peer& peer, const std::string& cgroup) {
  if (rule.user && *rule.user != peer.uid) return false;
  if (rule.group &&
      std::find(peer.groups.begin(), peer.groups.end(), *rule.group) == peer.groups.end()) {
    return false;
  }
  if (rule.cgroup.empty()) return true;
  return !cgroup.empty() && fnmatch(rule.cgroup.c_str(), cgroup.c_str(), 0) == 0;
}

Terms SitePolicy::first_match(const Peer& peer, const std::string& cgroup) const {
  for (const Rule& rule : rules_) {
    if (matches(rule, peer, cgroup)) return rule.terms;
  }
  return peer.uid == 0 || peer.uid == geteuid() ? Terms{} : default_;
}

Terms SitePolicy::terms(const Peer& peer) const {
  const auto names_cgroup = [](const Rule& rule) { return !rule.cgroup.empty(); };
  if (std::none_of(rules_.begin(), rules_.end(), names_cgroup)) return first_match(peer, {});
  const std::optional<std::string> cgroup = peer.process ? cgroup_of(*peer.process) : std::nullopt;
  Terms terms = first_match(peer, cgroup.value_or(std::string()));
  if (cgroup) return terms;
  // Any of the rules may be the one of this process.
  terms.max_priority = 0;
  terms.max_weight = 1;
  terms.max_slice = shm::kDriversSliceUs;
  for (const Rule& rule : rules_) {
    if (!names_cgroup(rule)) continue;
    terms.max_memory = std::min(terms.max_memory, rule.terms.max_memory);
    terms.min_give = std::max(terms.min_give, rule.terms.min_give);
  }
  terms.admitted = terms.admitted && std::all_of(rules_.begin(), rules_.end(), [&](const Rule& r) {
                     return !names_cgroup(r) || r.terms.admitted;
                   });
  return terms;
}

}  // namespace sluice::controller
