// The dispatcher's batches whose model's weights are not on the device.
#include <fmt/format.h>

#include <algorithm>

#include "server/requests/dispatcher.hpp"

namespace sluice::server {

/// A batch whose model is not on the device waits outside the queue: it must not take the token.
void Dispatcher::find_weights(Execution& execution) {
  if (residency_ == nullptr) return;
  execution.cold = !residency_->acquire(execution.model->id, execution.deadline_ns());
}

/// The batch needs the weights no more.
void Dispatcher::give_up_weights(const Execution& execution) {
  if (residency_ != nullptr) residency_->release(execution.model->id, execution.cold);
}

void Dispatcher::weights_settled(std::uint32_t model, const std::string& error) {
  post([this, model, error] {
    if (error.empty()) {
      weights_are_in(model);
    } else {
      weights_will_not_come(model, error);
    }
  });
}

void Dispatcher::weights_are_in(std::uint32_t model) {
  const std::uint64_t now = host_->now_ns();
  for (auto& [task, execution] : executions_) {
    if (execution->model->id != model || !execution->cold) continue;
    // They may have left again: then another message comes.
    if (!residency_->admit(model)) return;
    execution->cold = false;
    execution->cold_ns = now - execution->requests.front().times.queued_ns;
    if (execution->in_queue()) queue_.insert(task_of(*execution), now);
  }
}

void Dispatcher::weights_will_not_come(std::uint32_t model, const std::string& error) {
  const auto waits = [model](const Execution& each) {
    return each.model->id == model && each.cold;
  };
  const auto first =
      std::ranges::find_if(executions_, [&](const auto& entry) { return waits(*entry.second); });
  if (first == executions_.end()) return;
  const std::string& name = first->second->model->config.name;
  drop_executions(waits, {Code::kResourceExhausted, fmt::format("model '{}': {}", name, error), 0,
                          "device_memory"});
}

}  // namespace sluice::server
