// The line to the GPU process.
#pragma once

#include <atomic>
#include <mutex>
#include <string_view>

#include "base/fd.hpp"
#include "simgpu/channel/layout.hpp"
#include "simgpu/channel/mapping.hpp"
#include "simgpu/channel/messages.hpp"

namespace sluice::simgpu {

// Thread-safe. Once the GPU process is gone the connection stays lost.
class Connection {
 public:
  // Finds the session's GPU process or starts one. False: neither worked.
  bool open();

  // Sends a request and waits for its answer; false when refused or lost, see lost().
  bool request(const Request& request, int file = -1);

  void ring() const;

  // Looks whether the GPU process still lives; a system call, unless it is known to be lost.
  bool check_lost();
  [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_relaxed); }

  // Sleeps until the channel has completed `sequence`. False: the GPU process is gone.
  bool wait_completed(Channel& channel, std::uint64_t sequence);

  // After fork() in the child: gives up the line, which stays the parent's.
  void abandon();

  [[nodiscard]] Area& area() const { return *static_cast<Area*>(mapping_.get()); }
  [[nodiscard]] const Reply& gpu() const { return gpu_; }

  // The number under which the log knows a kernel.
  std::uint32_t name_index(std::string_view name);

 private:
  bool greet();
  bool exchange(const Request& request, int file, Reply& reply, base::Fd& received);

  std::mutex mutex_;
  base::Fd socket_;
  base::Fd doorbell_;
  Mapping mapping_;
  Reply gpu_;
  std::atomic<bool> lost_ = false;
  std::mutex names_mutex_;
  std::uint32_t names_ = 1;  // 0 is the name of none
};

// A sealed memfd of `bytes` zeros; empty on failure.
base::Fd make_shared_file(std::size_t bytes);

}  // namespace sluice::simgpu
