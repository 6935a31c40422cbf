#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "controller/admission.hpp"
#include "controller/site_policy.hpp"
#include "controller/subordinate_users.hpp"

namespace sluice::controller {

/// Everybody may connect to the node service. The site policy decides what they get.
class NodeAdmission : public Admission {
 public:
  /// `memory` and `for_reading` are descriptors of the board, which outlive this object. `ceilings`
  /// is the folder of the ceilings of cgroups. Reads `policy_file`, or SitePolicy::kFile if that
  /// exists. A rule with an unknown name is logged and left out: a server of names that is late
  /// must not keep the service away. Throws base::UsageError.
  NodeAdmission(std::string policy_file, std::string ceilings, int memory, int for_reading);

  /// Reads the policy again, in a thread of its own, because names may come from a server. A policy
  /// with a fault or an unknown name is logged and not used.
  void reload();

  [[nodiscard]] uid_t owner_of(uid_t uid) override;
  [[nodiscard]] bool may_connect(uid_t /*uid*/) const override { return true; }
  [[nodiscard]] std::size_t most_connections() const override { return 1024; }
  [[nodiscard]] std::size_t most_connections_of_a_user() const override { return 64; }
  /// Uid 0 of the host, which also pods share, can write to the board anyway.
  [[nodiscard]] int most_devices_of_a_user(uid_t uid) const override {
    return uid == 0 ? shm::kMaxDevices : shm::kMaxDevices / 2;
  }
  [[nodiscard]] Terms terms(const Peer& peer) override;
  [[nodiscard]] bool may_change(const Peer& peer, uid_t owner) const override;
  [[nodiscard]] std::string user_name(uid_t uid) const override;
  [[nodiscard]] int board(bool writable) const override;
  [[nodiscard]] std::string about() const override;

 private:
  struct Loaded {
    SitePolicy policy;
    SubordinateUsers users;
    bool has_file = false;
  };
  /// Of reload(), shared with its thread, which may still wait when the service ends.
  struct Arriving {
    std::mutex mutex;
    std::optional<Loaded> loaded;
    unsigned last_asked = 0;
  };
  static Loaded load(const std::string& chosen, std::vector<std::string>* skipped);
  void take_arrived();
  /// Of the peer's cgroups. 0 if there is a folder of ceilings and the cgroups are not known.
  [[nodiscard]] std::optional<int> ceiling_in_force(const Peer& peer) const;

  std::string chosen_file_;
  std::string ceilings_;
  int memory_;
  int for_reading_;
  Loaded loaded_;
  std::shared_ptr<Arriving> arriving_ = std::make_shared<Arriving>();
};

}  // namespace sluice::controller
