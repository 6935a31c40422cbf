#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "controller/clients.hpp"
#include "controller/command_reader.hpp"
#include "controller/leases.hpp"
#include "controller/server.hpp"

namespace sluice::controller {

/// Answers requests: gives slots to new clients, lets clients attach again to their slots, changes
/// priorities, policies and targets, and takes leases.
class Registry : public RequestHandler {
 public:
  Registry(std::string session, Clients& clients, Leases& leases, CommandReader& commands)
      : session_(std::move(session)), clients_(clients), leases_(leases), commands_(commands) {}

  shm::Reply answer(Connection& from, const shm::Request& request) override;
  void hung_up(const Connection& gone) override;

 private:
  shm::Reply decide(Connection& from, const shm::Request& request);
  shm::Reply lease(const Connection& from);
  shm::Reply attach(Connection& from, const shm::Request& request);
  shm::Reply attach_again(Connection& from, const shm::Request& request);
  shm::Reply set(const Connection& from, const shm::Request& request);
  shm::Reply given(Connection& to, int slot);
  void fill_slot(int slot, const Connection& from, const shm::Request& request);
  std::optional<std::uint8_t> device_index(const shm::Request& request);
  bool device_in_use(std::uint8_t device);
  bool logged_recently(pid_t pid);

  std::string session_;
  Clients& clients_;
  Leases& leases_;
  CommandReader& commands_;
  std::map<pid_t, std::uint64_t> logged_ns_;  ///< When a refusal of a process was last logged.
};

}  // namespace sluice::controller
