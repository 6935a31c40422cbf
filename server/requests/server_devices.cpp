// The devices of a server, and what concerns all of them.
#include <fmt/format.h>
#include <sluice/sluice.h>

#include <mutex>
#include <utility>

#include "server/requests/server.hpp"

namespace sluice::server {

Server::~Server() {
  // Their threads leave messages with the dispatchers.
  for (Device* const each : devices()) {
    if (each->residency) each->residency->stop();
  }
  // All before one is gone: a request may go from one to another.
  for (Device* const each : devices()) each->dispatcher->stop();
}

std::vector<Device*> Server::devices() const {
  const std::shared_lock lock(devices_mutex_);
  std::vector<Device*> all;
  for (const auto& [gpu, device] : devices_) all.push_back(device.get());
  return all;
}

Device& Server::device(int gpu) {
  const std::unique_lock lock(devices_mutex_);
  const auto known = devices_.find(gpu);
  if (known != devices_.end()) return *known->second;
  return *devices_.emplace(gpu, make_device(gpu)).first->second;
}

std::unique_ptr<Device> Server::make_device(int gpu) {
  auto made = std::make_unique<Device>();
  made->gpu = gpu;
  const char* const kind = options_.device == "simulated" ? "sim" : "cuda";
  made->name = gpu == kNoGpu ? "cpu" : fmt::format("{}:{}", kind, gpu);
  if (gpu != kNoGpu && options_.memory) {
    if (const auto memory = options_.memory(gpu)) {
      made->residency = make_residency(*made, *memory);
    }
  }
  DispatcherOptions options = options_.dispatcher;
  options.policy = policy_;
  made->dispatcher = std::make_unique<Dispatcher>(
      options, announcer_, memory_,
      [this](const Execution& execution, Pending& pending, const Status& status,
             const Response& response) { answered(execution, pending, status, response); },
      [this](const std::string& why) { context_lost(why); },
      Dispatcher::Sharing{gpu, gpu == options_.training_gpu ? training_ : nullptr,
                          made->residency.get(), hand_on});
  return made;
}

std::unique_ptr<memory::Residency> Server::make_residency(Device& device,
                                                          const memory::ResidencyOptions& options) {
  memory::ResidencyEvents events;
  // Weights move only for models of the dispatcher, which exists by then.
  events.settled = [&device](std::uint32_t model, const std::string& error) {
    device.dispatcher->weights_settled(model, error);
  };
  events.context_lost = [this](const std::string& why) { context_lost(why); };
  events.handover = [this](const training::Handover& handover) {
    if (profile_ != nullptr) profile_->handover(handover);
  };
  events.taken = [this](std::uint64_t ns) {
    if (profile_ != nullptr) profile_->took(PerfItem::kInferAllocStorage, ns);
  };
  events.loaded = [this](std::uint64_t ns) {
    if (profile_ != nullptr) profile_->took(PerfItem::kInferLoadParam, ns);
  };
  events.evicted = [this] {
    if (profile_ != nullptr) profile_->evicted();
  };
  events.log = [this, &device](const std::string& line) { events_.log(device.name + ": " + line); };
  events.held = [gpu = device.gpu] { return sluice_memory_held_on(gpu); };
  const bool trains = options_.grants && device.gpu == options_.training_gpu;
  return std::make_unique<memory::Residency>(options, trains ? training_ : nullptr,
                                             std::move(events));
}

/// No step can run any more, and no weights come: nobody else would answer what waits. CUDA leaves
/// no device of the process usable for sure.
void Server::context_lost(const std::string& why) {
  state_ = State::kEnded;
  for (Device* const each : devices()) each->dispatcher->fail_all({Code::kInternal, why});
  events_.context_lost(why);
}

bool Server::drain(std::uint64_t until_ns) {
  state_ = State::kEnded;
  return server::drain(devices(), until_ns);
}

void Server::wake() {
  for (Device* const each : devices()) each->dispatcher->wake();
}

std::string Server::scheduler() const {
  const std::shared_lock lock(devices_mutex_);
  return std::string(to_string(policy_));
}

Status Server::set_scheduler(const std::string& name) {
  const auto policy = scheduler::parse_policy(name);
  if (!policy) {
    std::string allowed;
    for (const auto each : scheduler::kPolicies) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(each));
    }
    return {Code::kInvalidArgument,
            fmt::format("unknown scheduler '{}', allowed: {}", name, allowed)};
  }
  const std::lock_guard one(policy_changes_);
  {
    const std::unique_lock lock(devices_mutex_);
    policy_ = *policy;
  }
  // Without that lock: the round that is waited for may need it.
  for (Device* const each : devices()) each->dispatcher->set_policy(*policy);
  records_.set_policy(std::string(to_string(*policy)));
  return {};
}

}  // namespace sluice::server
