#include "controller/node_admission.hpp"

#include <spdlog/spdlog.h>

#include <exception>
#include <filesystem>
#include <thread>

#include "base/user_name.hpp"

namespace sluice::controller {

NodeAdmission::NodeAdmission(std::string policy_file, int memory, int for_reading)
    : chosen_file_(std::move(policy_file)),
      memory_(memory),
      for_reading_(for_reading),
      loaded_(load(chosen_file_)) {}

NodeAdmission::Loaded NodeAdmission::load(const std::string& chosen) {
  if (!chosen.empty()) return {SitePolicy::load(chosen), true};
  std::error_code unreadable;
  if (!std::filesystem::exists(SitePolicy::kFile, unreadable) && !unreadable) return {};
  return {SitePolicy::load(SitePolicy::kFile), true};
}

void NodeAdmission::reload() {
  unsigned number = 0;
  {
    const std::lock_guard lock(arriving_->mutex);
    number = ++arriving_->last_asked;
  }
  std::thread([number, arriving = arriving_, chosen = chosen_file_] {
    try {
      Loaded loaded = load(chosen);
      const std::lock_guard lock(arriving->mutex);
      if (number == arriving->last_asked) arriving->loaded = std::move(loaded);
      spdlog::info("read the site policy again; it holds for programs that attach from now on");
    } catch (const std::exception& error) {
      spdlog::error("the old site policy stays in force: {}", error.what());
    }
  }).detach();
}

void NodeAdmission::take_arrived() {
  const std::lock_guard lock(arriving_->mutex);
  if (!arriving_->loaded) return;
  loaded_ = std::move(*arriving_->loaded);
  arriving_->loaded.reset();
}

Terms NodeAdmission::terms(const Peer& peer) {
  take_arrived();
  return loaded_.policy.terms(peer);
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
