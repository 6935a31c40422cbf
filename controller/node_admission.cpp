#include "controller/node_admission.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/user_name.hpp"
#include "controller/ceiling_files.hpp"

namespace sluice::controller {

NodeAdmission::NodeAdmission(std::string policy_file, std::string ceilings, int memory,
                             int for_reading)
    : chosen_file_(std::move(policy_file)),
      ceilings_(std::move(ceilings)),
      memory_(memory),
      for_reading_(for_reading) {
  std::vector<std::string> skipped;
  loaded_ = load(chosen_file_, &skipped);
  for (const std::string& line : skipped) {
    spdlog::error("{}; this rule is left out until the policy is read again", line);
  }
}

NodeAdmission::Loaded NodeAdmission::load(const std::string& chosen,
                                          std::vector<std::string>* skipped) {
  Loaded loaded{{}, SubordinateUsers::load(SubordinateUsers::kFile), !chosen.empty()};
  std::error_code unreadable;
  if (chosen.empty()) {
    loaded.has_file = std::filesystem::exists(SitePolicy::kFile, unreadable) || unreadable;
  }
  if (loaded.has_file) {
    loaded.policy = SitePolicy::load(chosen.empty() ? SitePolicy::kFile : chosen, skipped);
  }
  return loaded;
}

void NodeAdmission::reload() {
  unsigned number = 0;
  {
    const std::lock_guard lock(arriving_->mutex);
    number = ++arriving_->last_asked;
  }
  const auto read = [number, arriving = arriving_, chosen = chosen_file_] {
    try {
      Loaded loaded = load(chosen, nullptr);
      const std::lock_guard lock(arriving->mutex);
      if (number == arriving->last_asked) arriving->loaded = std::move(loaded);
      spdlog::info("read the site policy again; it holds for programs that attach from now on");
    } catch (const std::exception& error) {
      spdlog::error("the old site policy stays in force: {}", error.what());
    }
  };
  try {
    std::thread(read).detach();
  } catch (const std::system_error& error) {  // too many threads: no reason to end the service
    spdlog::error("the old site policy stays in force: no thread: {}", error.what());
  }
}

void NodeAdmission::take_arrived() {
  const std::lock_guard lock(arriving_->mutex);
  if (!arriving_->loaded) return;
  loaded_ = std::move(*arriving_->loaded);
  arriving_->loaded.reset();
}

uid_t NodeAdmission::owner_of(uid_t uid) {
  take_arrived();
  return loaded_.users.owner_of(uid);
}

Terms NodeAdmission::terms(const Peer& peer) {
  take_arrived();
  Terms terms = loaded_.policy.terms(peer);
  const auto ceiling = ceiling_in_force(peer);
  terms.max_priority = std::min(terms.max_priority, ceiling.value_or(terms.max_priority));
  return terms;
}

std::optional<int> NodeAdmission::ceiling_in_force(const Peer& peer) const {
  std::error_code unreadable;
  if (!std::filesystem::exists(ceilings_, unreadable) && !unreadable) return std::nullopt;
  const auto cgroups = peer.process ? all_cgroups_of(*peer.process) : std::nullopt;
  // Any of the ceilings may be the one of this process.
  return cgroups ? ceiling_of(*cgroups, ceilings_) : 0;
}

bool NodeAdmission::may_change(const Peer& peer, uid_t owner) const {
  return peer.uid == 0 || peer.uid == owner;
}

std::string NodeAdmission::user_name(uid_t uid) const { return base::local_user_name(uid); }

int NodeAdmission::board(bool writable) const { return writable ? memory_ : for_reading_; }

std::string NodeAdmission::about() const {
  if (!loaded_.has_file) return "no site policy: root may ask for priority 255, others for 0";
  return "site policy " + (chosen_file_.empty() ? SitePolicy::kFile : chosen_file_);
}

}  // namespace sluice::controller
