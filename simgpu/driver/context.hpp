#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

struct Stream;

struct Context {
  std::atomic<std::uint32_t> id = 0;  // never reused in a process
  CUdevice device = 0;
  CUcontext handle = nullptr;
  unsigned flags = 0;
  bool primary = false;
  std::atomic<bool> destroyed = false;
  std::atomic<std::uint64_t> next_order = 1;  // for Command::order

  std::mutex mutex;  // guards the members below
  std::shared_ptr<Stream> legacy;
  std::vector<std::weak_ptr<Stream>> streams;
};

struct PrimaryContexts {
  struct State {
    std::shared_ptr<Context> context;
    unsigned references = 0;
    unsigned flags = 0;
  };
  std::mutex mutex;
  std::map<CUdevice, State> by_device;
};

// The calling thread's contexts, the current one last.
std::vector<std::shared_ptr<Context>>& context_stack();

// The calling thread's context; empty if there is none.
std::shared_ptr<Context> current_context();

}  // namespace sluice::simgpu
