#pragma once
#include "shm/gates.hpp"
#include "shm/messages.hpp"

namespace sluice::test {

/// A request of `sluice set` that changes nothing yet.
inline shm::Request change_of(shm::SlotOf client, std::uint64_t board_id) {
  shm::Request request;
  request.kind = shm::RequestKind::kSet;
  request.slot = client.slot;
  request.generation = client.generation;
  request.board_id = board_id;
  request.priority = shm::kKeepPriority;
  request.policy = shm::kKeepPolicy;
  request.target = shm::kKeepTarget;
  request.slice = shm::kKeepSlice;
  request.memory = shm::kKeepMemory;
  request.weight = shm::kKeepWeight;
  request.give = shm::kKeepGive;
  return request;
}

}  // namespace sluice::test
