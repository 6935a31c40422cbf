// Requests that a dispatcher takes or gives to another device, and how long all of them will take.
#include <algorithm>
#include <utility>

#include "server/requests/dispatcher.hpp"

namespace sluice::server {
namespace {

std::uint64_t difference(std::uint64_t one, std::uint64_t other) {
  return std::max(one, other) - std::min(one, other);
}

}  // namespace

Dispatcher::Message Dispatcher::acceptance(std::shared_ptr<Model> model, Pending pending) {
  const std::uint64_t takes_ns = model->limits.ns(pending.items);
  unread_ns_ += takes_ns;
  // std::function must be copyable.
  auto shared = std::make_shared<Pending>(std::move(pending));
  return [this, takes_ns, model = std::move(model), shared] {
    read_ns_ += takes_ns;
    accept(model, std::move(*shared));
  };
}

void Dispatcher::submit(std::shared_ptr<Model> model, Pending pending) {
  post_here(acceptance(std::move(model), std::move(pending)));
}

void Dispatcher::hand_over(std::shared_ptr<Model> model, Pending pending) {
  post(acceptance(std::move(model), std::move(pending)));
}

/// When all executions will be done if they run one after another; 0: there is none. One that takes
/// longer than it should is expected to be late as long again: its device may be stuck.
std::uint64_t Dispatcher::done_at_ns(std::uint64_t now) const {
  if (executions_.empty()) return 0;
  std::uint64_t left_ns = 0;
  for (const auto& [task, execution] : executions_) {
    std::uint64_t ran_ns = execution->blocks_ns();
    if (execution->running) ran_ns += now - std::min(now, execution->step_ns);
    left_ns += difference(execution->whole_ns, ran_ns);
  }
  return now + left_ns;
}

std::uint64_t Dispatcher::ahead_ns() const {
  const std::uint64_t done_at = done_at_ns_;
  // A device that is about to be done is not as good as an idle one.
  const std::uint64_t known = done_at == 0 ? 0 : difference(done_at, host_->now_ns()) + 1;
  return known + unread_ns_;
}

std::uint64_t Dispatcher::turn_wait_ns() const {
  if (turn_ == nullptr || turn_taken_) return 0;
  // Of two idle devices the one without training is better.
  return std::max<std::uint64_t>(turn_wait_ns_, 1);
}

bool Dispatcher::fails(const Model& model) const {
  constexpr std::uint64_t kAvoidNs = 1'000'000'000;
  const std::uint64_t failed_ns = model.failed_ns;
  return failed_ns != 0 && host_->now_ns() < failed_ns + kAvoidNs;
}

/// A request that would be late here, or for whose model there is no memory, goes to the next
/// device that its model is on. False: it is answered.
bool Dispatcher::move_on(Pending& pending, const Status& status) {
  const bool better_elsewhere = status.reason == "deadline" || status.reason == "device_memory";
  if (stop_ || status.code != Code::kResourceExhausted || !better_elsewhere) return false;
  if (pending.elsewhere.empty() || !hand_on_) return false;
  pending.dropped.reset();
  hand_on_(std::move(pending));
  return true;
}

}  // namespace sluice::server
