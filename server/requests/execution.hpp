#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/task.hpp"
#include "server/models/model.hpp"
#include "server/service/service.hpp"

namespace sluice::server {

/// A request in the queue or in an execution.
struct Pending {
  std::uint64_t id = 0;
  Request request;
  Done done;
  std::size_t items = 0;
  std::uint64_t deadline_ns = scheduler::kNoDeadline;
  std::uint64_t announced_ns = 0;  ///< The notice that the gate was given.
  RequestTimes times;
  /// The model on the devices that have not refused the request yet, but the one it is with.
  std::vector<std::shared_ptr<Model>> elsewhere{};
  /// Whether the client is gone. Null: it cannot go.
  std::shared_ptr<const std::atomic<bool>> gone{};
  /// Why its answer is due at the end of the running step.
  std::optional<Status> dropped;
};

/// The answer to a request of a client that has left.
[[nodiscard]] inline Status client_gone() {
  return {Code::kCancelled, "the client is gone", 0, "client"};
}

/// Requests of one model that run as one batch: one task of the scheduler.
struct Execution {
  std::uint64_t task = 0;
  std::shared_ptr<Model> model;
  std::vector<Pending> requests;
  std::size_t items = 0;
  bool begun = false;
  bool running = false;          ///< An executor has it: nobody else may touch its requests.
  bool held = false;             ///< Waits for a full batch, outside the scheduler's queue.
  bool cold = false;             ///< Waits for the model's weights, outside the queue as well.
  std::uint64_t cold_ns = 0;     ///< How long it has waited for them.
  std::uint64_t release_ns = 0;  ///< When it no longer waits for a full batch.
  Model::Instance* instance = nullptr;
  std::shared_ptr<engine::Batch> batch;  ///< Made by the first step.
  std::uint64_t begun_ns = 0;
  std::uint64_t step_ns = 0;       ///< Begin of the step that runs.
  std::uint64_t whole_ns = 0;      ///< The estimate for all of its blocks.
  std::uint64_t turn_wait_ns = 0;  ///< How long it waited for training to leave.
  std::uint64_t input_ns = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;  ///< Begin and end of each step.

  [[nodiscard]] bool in_queue() const { return !held && !cold; }
  /// The time of all steps so far, without the time between them.
  [[nodiscard]] std::uint64_t blocks_ns() const {
    std::uint64_t sum = 0;
    for (const auto& [begin, end] : runs) sum += end - begin;
    return sum;
  }
  [[nodiscard]] std::uint64_t deadline_ns() const {
    std::uint64_t earliest = scheduler::kNoDeadline;
    for (const Pending& request : requests) {
      if (request.done) earliest = std::min(earliest, request.deadline_ns);
    }
    return earliest;
  }
  /// Whether a request still waits for its answer.
  [[nodiscard]] bool wanted() const {
    return std::any_of(requests.begin(), requests.end(), [](const Pending& request) {
      return bool(request.done) && !request.dropped;
    });
  }
};

}  // namespace sluice::server
