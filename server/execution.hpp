#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/task.hpp"
#include "server/model.hpp"
#include "server/service.hpp"

namespace sluice::server {

/// A request in the queue or in an execution.
struct Pending {
  std::uint64_t id = 0;
  Request request;
  Done done;
  std::size_t items = 0;
  std::uint64_t bytes = 0;
  std::uint64_t deadline_ns = scheduler::kNoDeadline;
  std::uint64_t announced_ns = 0;  ///< The notice that the gate was given.
  RequestTimes times;
};

/// Requests of one model that run as one batch: one task of the scheduler.
struct Execution {
  std::uint64_t task = 0;
  std::shared_ptr<Model> model;
  std::vector<Pending> requests;
  std::size_t items = 0;
  bool begun = false;
  bool held = false;             ///< Waits for a full batch, outside the scheduler's queue.
  std::uint64_t release_ns = 0;  ///< When it no longer waits for a full batch.
  Model::Instance* instance = nullptr;
  std::shared_ptr<engine::Batch> batch;  ///< Made by the first step.
  std::uint64_t input_ns = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;  ///< Begin and end of each step.

  [[nodiscard]] std::uint64_t deadline_ns() const {
    std::uint64_t earliest = scheduler::kNoDeadline;
    for (const Pending& request : requests) earliest = std::min(earliest, request.deadline_ns);
    return earliest;
  }
};

}  // namespace sluice::server
