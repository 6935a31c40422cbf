#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "intercept/client/client.hpp"
#include "intercept/client/process.hpp"

namespace sluice::intercept {

/// The clients of this process, one for each device. Visited without a lock; never removed.
class Clients {
 public:
  static constexpr int kMost = 32;

  template <class Visit>
  void for_each(Visit visit) {
    if (in_forked_child()) return;
    const int count = count_.load(std::memory_order_acquire);
    for (int i = 0; i < count; ++i) visit(*clients_[static_cast<std::size_t>(i)]);
  }
  [[nodiscard]] Client* of(CUdevice device) noexcept {
    Client* found = nullptr;
    for_each([&](Client& client) {
      if (client.device() == device) found = &client;
    });
    return found;
  }
  [[nodiscard]] int count() const noexcept { return count_.load(std::memory_order_acquire); }
  /// Callers must hold a common lock.
  void add(std::unique_ptr<Client> client) noexcept {
    const int count = count_.load();
    clients_[static_cast<std::size_t>(count)] = std::move(client);
    count_.store(count + 1, std::memory_order_release);
  }

 private:
  std::array<std::unique_ptr<Client>, kMost> clients_;
  std::atomic<int> count_{0};
};

}  // namespace sluice::intercept
