#pragma once
#include <string>
#include <utility>

#include "controller/clients.hpp"
#include "controller/command_reader.hpp"
#include "controller/leases.hpp"
#include "controller/recent_lines.hpp"
#include "controller/room.hpp"
#include "controller/server.hpp"

namespace sluice::controller {

/// Answers requests: gives slots to new clients, lets clients attach again to their slots, changes
/// priorities, policies, targets and memory limits, and takes leases.
class Registry : public RequestHandler {
 public:
  Registry(std::string session, Clients& clients, Leases& leases, CommandReader& commands,
           Admission& admission)
      : session_(std::move(session)),
        clients_(clients),
        leases_(leases),
        commands_(commands),
        admission_(admission),
        room_(clients, admission) {}

  shm::Reply answer(Connection& from, const shm::Request& request) override;
  void report(const Connection& from, const shm::Report& report) override;
  void hung_up(const Connection& gone) override;

 private:
  shm::Reply decide(Connection& from, const shm::Request& request);
  shm::Reply lease(const Connection& from);
  shm::Reply attach(Connection& from, const shm::Request& request);
  shm::Reply attach_again(Connection& from, const shm::Request& request);
  shm::Reply set(const Connection& from, const shm::Request& request);
  shm::Reply give_board(Connection& to, shm::RequestKind kind);
  shm::Reply not_admitted(const Peer& peer) const;
  /// The reason why the peer may not make this change; empty if it may.
  std::string fault_of_change(const Peer& peer, const shm::Request& request);
  /// The priority that the peer gets, and in `notice` why it is not the one that it asked for.
  std::uint8_t granted_priority(const Peer& peer, const Terms& terms, std::uint32_t asked,
                                std::string& notice) const;
  shm::Reply given(Connection& to, int slot, const std::string& notice);
  void take_back_unanswered(const Peer& peer);
  void take_back_others(const Peer& peer, int kept);
  template <class Visit>
  void for_each_adopted(const ClientProcess& process, Visit visit);
  void fill_slot(int slot, const Connection& from, const shm::Request& request);
  void log_once(const Connection& from, const shm::Request& request, const char* what,
                const shm::Reply& reply);

  std::string session_;
  Clients& clients_;
  Leases& leases_;
  CommandReader& commands_;
  Admission& admission_;
  Room room_;
  RecentLines logged_;  ///< Refusals, by pid.
};

}  // namespace sluice::controller
