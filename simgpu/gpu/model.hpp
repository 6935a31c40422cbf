// The parts of the simulated GPU, as plain data. timeline.cpp advances streams and scheduler.cpp
// advances devices. Times are real CLOCK_MONOTONIC ns (simulated times multiplied by the scale).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "simgpu/channel/layout.hpp"
#include "simgpu/channel/mapping.hpp"
#include "simgpu/gpu/address_space.hpp"

namespace sluice::simgpu {

using Nanoseconds = std::uint64_t;
inline constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();

using GraphWork = std::vector<Work>;  // in an order that the graph's edges allow

// What takes turns on a device: a context, or all contexts of an MPS server together.
struct ChannelGroup {
  Nanoseconds slice = 0;  // scaled; how long it runs before another group's turn
  bool of_mps = false;    // several kernels run at once
};

// Lives as long as one of its clients.
struct MpsServer {
  std::uint64_t identity = 0;
  base::Fd daemon;       // pidfd; empty if the daemon cannot be watched
  bool faulted = false;  // takes no more clients
  std::map<unsigned, std::weak_ptr<ChannelGroup>> groups;  // by device
};

struct Context {
  std::uint32_t id = 0;
  unsigned device = 0;
  std::shared_ptr<ChannelGroup> group;
};

struct Client;

// A stream of a client.
struct Stream {
  enum class Phase {
    kFetch,    // the next work has not begun, if there is any
    kTimed,    // work without the compute engine, until `until`
    kParked,   // a wait whose value has not arrived
    kHost,     // a host function runs in the client
    kCompute,  // a kernel has requested multiprocessors at `requested_at`
    kRunning,  // a kernel has multiprocessors
  };

  Client* client = nullptr;
  Channel* channel = nullptr;
  Phase phase = Phase::kFetch;
  bool fetched = false;      // `command` holds the head of the ring
  bool was_blocked = false;  // the work's turn came, but something else had to happen first
  Nanoseconds ready_at = 0;  // end of the previous work
  Nanoseconds begun_at = 0;
  Nanoseconds until = 0;
  Nanoseconds requested_at = 0;
  double remaining = 0;  // ns at full speed until the kernel gives its multiprocessors back
  Nanoseconds tail = 0;  // time of the kernel after that
  unsigned multiprocessors = 0;
  Context* context = nullptr;
  ChannelKind kind = ChannelKind::kBlocking;
  Command command;
  Work work;
  std::shared_ptr<const GraphWork> graph;
  std::size_t node = 0;
  Nanoseconds graph_begun_at = 0;
};

struct Client {
  Client(pid_t peer, base::Fd connection)
      : pid(peer), socket(std::move(connection)), memory(peer) {}

  pid_t pid;
  base::Fd socket;
  base::Fd process;  // pidfd
  Mapping area_mapping;
  AddressSpace memory;
  std::shared_ptr<MpsServer> server;  // empty without MPS
  unsigned priority = 0;              // of an MPS client; lower numbers go first
  unsigned most_multiprocessors = kMultiprocessors;
  bool faulted = false;
  std::map<unsigned, std::uint64_t> held_bytes;  // of each device's memory
  std::map<std::uint32_t, std::unique_ptr<Context>> contexts;
  std::map<std::uint64_t, std::shared_ptr<const GraphWork>> graphs;
  std::vector<std::unique_ptr<Stream>> streams;

  [[nodiscard]] Area* area() const { return static_cast<Area*>(area_mapping.get()); }
};

struct Device {
  ChannelGroup* loaded = nullptr;
  std::vector<Stream*> running;
  Nanoseconds settled_at = 0;  // the time of `remaining` of the running kernels
  unsigned free = kMultiprocessors;
  Nanoseconds free_at = 0;  // since when
  Nanoseconds slice_end = 0;
  bool used = false;
};

}  // namespace sluice::simgpu
