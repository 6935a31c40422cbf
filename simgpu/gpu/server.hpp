// The connections of the GPU process: new clients, their requests, and their ends.
#pragma once

#include <csignal>
#include <map>
#include <string>

#include "base/fd.hpp"
#include "simgpu/channel/messages.hpp"
#include "simgpu/channel/place.hpp"
#include "simgpu/gpu/simulation.hpp"

namespace sluice::simgpu {

class Server {
 public:
  // `listener` is listening, and other processes find it at `path` in `place`.
  // `memory_bytes`: the memory of each device.
  Server(base::Fd listener, Place place, std::string path, Simulation simulation,
         std::uint64_t memory_bytes);

  // Runs until a second after the last client has gone, or until `stop` is set.
  void run(const volatile std::sig_atomic_t& stop);

 private:
  void accept_clients();
  void answer(Client& client);
  bool handle(Client& client, const Request& request, base::Fd& file, Reply& reply);
  bool share_memory(Client& client, const Request& request, Reply& reply);
  void drop(Client& client);
  static bool attach_area(Client& client, const Request& request, const base::Fd& file);
  static bool take_graph(Client& client, const Request& request, const base::Fd& file);
  void sleep(const Simulation::Outlook& outlook);
  Nanoseconds pause_before(const Simulation::Outlook& outlook) const;
  // Removes the socket, unless a client has connected meanwhile or somebody looks for this process.
  bool end_if_unused();

  base::Fd listener_;
  Place place_;
  std::string path_;
  Simulation simulation_;
  std::uint64_t memory_bytes_;
  std::map<unsigned, std::uint64_t> held_bytes_;  // of each device's memory, by all clients
  base::Fd doorbell_;
  Nanoseconds empty_since_;
  std::vector<Client*> known_;
};

}  // namespace sluice::simgpu
