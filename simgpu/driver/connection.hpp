// The connection to the GPU process.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "simgpu/channel/layout.hpp"
#include "simgpu/channel/mapping.hpp"
#include "simgpu/channel/messages.hpp"
#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

// Thread-safe. After the GPU process has ended, the connection stays lost.
class Connection {
 public:
  // Finds or starts the GPU process. Returns false if both fail, with a line on standard error if
  // the environment names no place for it.
  bool open();

  // Sends a request and waits for the reply, which `answer` gets unless it is null. Returns false
  // if the request was refused or the connection is lost.
  bool request(const Request& request, int file = -1, Reply* answer = nullptr);

  void ring() const;

  // Whether open() has succeeded, and the GPU process lives.
  [[nodiscard]] bool is_open() const { return mapping_ && !lost(); }
  // What a call returns now: the error of a fault, which is for all later calls, or of a lost
  // connection.
  [[nodiscard]] CUresult state() const {
    if (const std::int32_t fault = area().fault.load(std::memory_order_relaxed); fault != 0) {
      return static_cast<CUresult>(fault);
    }
    return lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
  }

  // Checks whether the GPU process still lives. Makes a system call unless the connection is lost.
  bool check_lost();
  [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_relaxed); }

  // Sleeps until the channel has completed `sequence`. Returns false if the GPU process is gone.
  bool wait_completed(Channel& channel, std::uint64_t sequence);

  // For the child of a fork: gives up the connection, which still belongs to the parent.
  void abandon();

  [[nodiscard]] Area& area() const { return *static_cast<Area*>(mapping_.get()); }
  [[nodiscard]] const Reply& gpu() const { return gpu_; }

  // The number of a kernel's name in the log.
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
  std::uint32_t names_ = 1;  // number 0: no name
};

// A sealed memfd of `bytes` zeros; empty if it cannot be created.
base::Fd make_shared_file(std::size_t bytes, const std::string& name = "sluice-simgpu");

}  // namespace sluice::simgpu
