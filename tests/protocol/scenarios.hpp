#pragma once
#include <vector>

#include "tests/protocol/explorer.hpp"

namespace sluice::protocol {

std::vector<Scenario> job_scenarios();         ///< Jobs during attach; several devices.
std::vector<Scenario> priority_scenarios();    ///< Jobs during changes of priority.
std::vector<Scenario> leave_scenarios();       ///< Jobs while a client leaves.
std::vector<Scenario> death_scenarios();       ///< Deaths, repair, reuse of slots.
std::vector<Scenario> controller_scenarios();  ///< Death of the controller; adoption.
std::vector<Scenario> hold_scenarios();        ///< max_hold; stopped processes.
std::vector<Scenario> draining_scenarios();    ///< Clients whose queue a broker empties.
std::vector<Scenario> reader_scenarios();      ///< Clients for which the node service writes.
std::vector<Scenario> liveness_scenarios();  ///< Dead and stopped holders, found by their targets.

inline std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all;
  for (auto* make :
       {job_scenarios, priority_scenarios, leave_scenarios, death_scenarios, controller_scenarios,
        hold_scenarios, draining_scenarios, liveness_scenarios, reader_scenarios}) {
    for (Scenario& scenario : make()) all.push_back(std::move(scenario));
  }
  return all;
}

}  // namespace sluice::protocol
