#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/memory/residency.hpp"
#include "server/models/model.hpp"
#include "server/requests/dispatcher.hpp"

namespace sluice::server {

/// What a server has once for each GPU that its models use, and once for the CPU. Nothing on one
/// device waits for another.
struct Device {
  int gpu = kNoGpu;                              ///< Its index.
  std::string name;                              ///< cuda:N, sim:N or cpu.
  std::unique_ptr<memory::Residency> residency;  ///< Null: all weights always stay.
  std::unique_ptr<Dispatcher> dispatcher;

  /// Estimated ns until `items` more items of a model that is loaded here would be done: after all
  /// that is queued, once training has left, and once the model's weights are in. Thread-safe.
  [[nodiscard]] std::uint64_t completion_ns(const Model& model, std::size_t items) const {
    const std::uint64_t cold_ns = residency ? residency->cold_ns(model.id) : 0;
    const std::uint64_t turn_ns = model.config.priority > 0 ? dispatcher->turn_wait_ns() : 0;
    return dispatcher->ahead_ns() + turn_ns + cold_ns + model.limits.ns(items);
  }
};

/// A model on each of its devices.
using Replicas = std::vector<std::shared_ptr<Model>>;

/// The replica whose device can finish `items` items first. Of equal ones the first. One that fails
/// is done at once, and would draw all requests to itself, so it comes last.
[[nodiscard]] inline Replicas::iterator earliest(Replicas& replicas, std::size_t items) {
  return std::ranges::min_element(replicas, {}, [items](const std::shared_ptr<Model>& each) {
    const Device& device = *each->device;
    return std::pair(device.dispatcher->fails(*each), device.completion_ns(*each, items));
  });
}

/// Gives a request to the device elsewhere that can finish it first, for Dispatcher::Sharing.
inline void hand_on(Pending pending) {
  const auto next = earliest(pending.elsewhere, pending.items);
  const std::shared_ptr<Model> model = *next;
  pending.elsewhere.erase(next);
  model->waiting.fetch_add(1);
  model->device->dispatcher->hand_over(model, std::move(pending));
}

/// Returns true when nothing is left on any device, or false at `until_ns`. A request may go from a
/// device to one that has been looked at before, less often than there are devices.
[[nodiscard]] inline bool drain(const std::vector<Device*>& devices, std::uint64_t until_ns) {
  bool all = true;
  for (std::size_t look = 0; look < devices.size(); ++look) {
    for (Device* const each : devices) all = each->dispatcher->drain(until_ns) && all;
  }
  return all;
}

}  // namespace sluice::server
