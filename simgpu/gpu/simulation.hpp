// The simulated GPU: all clients, streams and devices.
#pragma once

#include <memory>
#include <vector>

#include "simgpu/channel/messages.hpp"
#include "simgpu/gpu/event_log.hpp"
#include "simgpu/gpu/model.hpp"

namespace sluice::simgpu {

// A discrete-event simulation: every start and end follows from the times of the calls and of
// earlier work, never from the times at which this process ran. For one thread.
class Simulation {
 public:
  Simulation(double scale, unsigned devices, EventLog log);

  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] unsigned devices() const { return static_cast<unsigned>(devices_.size()); }
  [[nodiscard]] std::size_t clients() const { return clients_.size(); }

  Client& add_client(std::unique_ptr<Client> client);
  // Also in the middle of its work. Like the calls below, at the time of the last advance().
  void drop_client(Client& client);
  bool create_context(Client& client, std::uint32_t id, std::uint64_t device);
  void destroy_context(Client& client, std::uint32_t id);
  bool set_slice(Client& client, std::uint32_t id, std::uint64_t us, Nanoseconds now);

  // mps.cpp. Makes `client`, which has no context yet, a client of the MPS server of a daemon.
  // False if the server takes no more clients, because one of its clients has faulted and some live
  // on.
  bool join_mps(Client& client, const Request& request);
  // The MPS servers that have clients.
  [[nodiscard]] std::vector<std::shared_ptr<MpsServer>> mps_servers() const;
  // The server's daemon has ended, and the server with it.
  void end_server(MpsServer& server);

  struct Outlook {
    Nanoseconds next = kNever;          // time of the next known start or end
    bool parked = false;                // some stream polls memory
    Nanoseconds parked_since = kNever;  // when the last of them parked
  };
  // Carries out everything up to `now`.
  Outlook advance(Nanoseconds now);

  void flush_log() { log_.flush(); }

 private:
  // timeline.cpp: the commands of one stream, in order
  void find_streams(Client& client);
  bool fetch(Stream& stream);
  Nanoseconds next_of(Stream& stream);
  Nanoseconds start_time(Stream& stream);
  [[nodiscard]] double submit_latency(const Stream& stream) const;
  bool must_wait_for_another(Stream& stream);
  bool behind_legacy_barrier(Stream& stream);
  void fire(Stream& stream, Nanoseconds at);
  void begin(Stream& stream, Nanoseconds at);
  void end_timed(Stream& stream, Nanoseconds at);
  void finish_work(Stream& stream, Nanoseconds at);
  void finish_kernel(Stream& stream, Nanoseconds at);
  void finish_command(Stream& stream, Nanoseconds at);
  bool value_is_there(Stream& stream);
  void request_multiprocessors(Stream& stream, Nanoseconds at);
  void call_host(Stream& stream);
  void poll_parked(Nanoseconds now);

  // mps.cpp: faults
  void fault(Client& client, unsigned device);
  void end_all_work(Client& client, std::int32_t error, Nanoseconds at);
  void drop_work(Stream& stream, Nanoseconds at);
  [[nodiscard]] std::shared_ptr<ChannelGroup> group_of_new_context(Client& client, unsigned device);

  // multiprocessors.cpp: which kernel has how many, and how fast it is
  Stream* next_taker(const Device& device, Nanoseconds& at);
  void give(Device& device, Stream& stream, Nanoseconds at);
  static void take_back(Device& device, Stream& stream, Nanoseconds at);
  // When a running kernel gives its multiprocessors back, if nothing else happens.
  static Nanoseconds end_of(const Device& device, const Stream& stream);
  static void settle(Device& device, Nanoseconds at);

  // scheduler.cpp: the use of a device's compute engine
  struct Choice {
    Nanoseconds at = kNever;
    enum class Action { kNone, kRun, kSwitch, kPreempt, kEnd } action = Action::kNone;
    Stream* stream = nullptr;
  };
  Choice choose(const Device& device);
  Choice choose_of_loaded(const Device& device);
  Choice choose_while_idle(const Device& device, const Choice& own, Stream* other);
  Stream* earliest_request_of_others(const Device& device);
  bool loaded_is_between_kernels(const Device& device);
  [[nodiscard]] Nanoseconds slice_end_after(const Device& device, Nanoseconds request) const;
  void carry_out(Device& device, const Choice& choice);
  void restart_slice(const Stream& stream, Nanoseconds at);
  void switch_to(Device& device, const Stream& stream, Nanoseconds at);
  void forget(Stream& stream, Nanoseconds at);
  void unload(Context& context);

  [[nodiscard]] Nanoseconds scaled(double simulated) const {
    return static_cast<Nanoseconds>(simulated * scale_);
  }

  template <typename F>
  void for_each_stream(F&& visit) {
    for (auto& client : clients_) {
      for (auto& stream : client->streams) visit(*stream);
    }
  }

  double scale_;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<Client>> clients_;
  EventLog log_;
  Nanoseconds instant_ = 0;  // time of the last event carried out
  Nanoseconds now_ = 0;      // time to which everything has been carried out
  Nanoseconds latest_park_ = 0;
};

}  // namespace sluice::simgpu
