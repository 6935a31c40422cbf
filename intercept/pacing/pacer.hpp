#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "intercept/driver/driver.hpp"
#include "intercept/driver/driver_wait.hpp"
#include "intercept/pacing/durations.hpp"
#include "intercept/pacing/sampler.hpp"
#include "shm/policy.hpp"
#include "shm/trace_format.hpp"

namespace sluice::intercept {

class Client;

/// Bounds how much of this client's work can stand in front of a critical job: the sync points,
/// event groups and device waits of its policy, on the launch's own stream.
class Pacer {
 public:
  explicit Pacer(Client& client) noexcept : client_(client) {}

  /// What is kept of one stream, by the id that the driver never uses twice.
  struct Stream {
    std::mutex mutex;
    CUcontext context = nullptr;
    CUstream handle = nullptr;
    pid_t thread = 0;    ///< Whose default stream it is; 0: it is nobody's, and ends by forget().
    shm::Policy policy;  ///< Under which `launches` counts: another one begins anew.
    std::uint64_t launches = 0;
    std::array<CUevent, 2> group_end{};  ///< Of even and odd groups; null until first used.
    std::array<bool, 2> recorded{};
    std::atomic<std::uint64_t> run_ns{
        0};                         ///< LaunchDuration of what was launched since its last wait.
    std::atomic<bool> idle{false};  ///< Nothing was launched since write_off_idle().
    std::uint64_t previous = 0;  ///< The kind of its last launch (LaunchDurations::find_in_turn).
    Sampler sampler;
  };

  /// One launch's place in its stream. It keeps its number, because another thread may launch into
  /// the same stream before after() is called: else no launch might end the group. And its policy,
  /// because another one may come in force before the launch is done.
  struct Turn {
    std::shared_ptr<Stream> state;  ///< Null: nothing is to be done.
    std::uint64_t number = 0;       ///< From 1.
    bool sampled = false;
    shm::Policy policy;
  };

  /// Around each launch while Client::must_pace(). before() may wait on the driver; its result
  /// goes to after().
  /// `held`: on the host until now, by a policy that is gone; then a wait is due whatever was
  /// spent.
  Turn before(Entry entry, CUstream stream, const Work& work, bool held = false) noexcept;
  void after(const Turn& turn, CUstream stream, CUresult launched) noexcept;

  /// What is known of the lengths of launches.
  [[nodiscard]] LaunchDurations& durations() noexcept { return durations_; }
  /// For the polling thread: takes in samples. Returns whether some are under way.
  bool collect_samples() noexcept;

  /// Puts a wait for the open gate as a node into the stream's capture. False if the device cannot
  /// (see put_wait), and outside the context that the board is registered in: the graph may outlive
  /// that context, and the driver refuses graphs that wait on memory no longer registered.
  bool put_node(CUstream stream) noexcept;
  /// The same, until there is room for a launch of so many ns.
  bool put_slack_node(CUstream stream, std::uint32_t ns) noexcept;
  /// Whether a wait on this address is one of ours.
  [[nodiscard]] bool waits_at(CUdeviceptr address) const noexcept;

  /// The stream is about to be destroyed.
  void forget(CUstream stream) noexcept;

  /// A context (null: perhaps any) has been destroyed, with the events and registrations it held.
  void forget_context(CUcontext context) noexcept;

 private:
  using Streams = std::unordered_map<std::uint64_t, std::shared_ptr<Stream>>;
  std::shared_ptr<Stream> find(CUstream stream);
  [[nodiscard]] std::vector<Streams::value_type> of_ended_threads();
  void end_of_thread(const Streams::value_type& kept) noexcept;
  void end(Stream& state) noexcept;
  void begin_group(Stream& state, std::uint64_t group, shm::Policy policy) noexcept;
  template <class Query>
  Waited wait(shm::TraceHold why, shm::Policy policy, Query query) noexcept;
  /// Policy device in time: puts the launch to the account. Whether a wait is due in front of it.
  [[nodiscard]] bool spend(Stream& state, const LaunchDuration* length, bool graph,
                           const shm::Policy& policy) noexcept;
  void write_off_idle() noexcept;
  [[nodiscard]] bool begin_sample(Stream& state, LaunchDuration* length, CUstream stream) noexcept;
  void note_known(bool known) noexcept;
  void tell_status(const LaunchDuration* length, bool graph) noexcept;
  /// Puts a wait for the open gate into the stream. False if the device cannot; then the policy
  /// falls back to event:2, with a warning.
  bool put_wait(CUstream stream) noexcept;
  void wait_for_slack(const LaunchDuration* length, bool graph, CUstream stream,
                      const shm::Policy& policy) noexcept;
  bool put_slack_wait(CUstream stream, std::uint32_t ns) noexcept;
  [[nodiscard]] static CUdeviceptr slack_beside(CUdeviceptr gate) noexcept;
  [[nodiscard]] bool may_put_node() noexcept;
  bool register_board() noexcept;
  bool register_here() noexcept;
  void fall_back(const char* why) noexcept;

  Client& client_;
  std::mutex mutex_;
  Streams streams_;
  std::size_t many_streams_ = 64;  ///< So many make it look for those whose threads have ended.
  std::atomic<CUdeviceptr> gate_address_{0};  ///< 0: the board is not registered.
  std::atomic<CUcontext> registered_in_{nullptr};

  LaunchDurations durations_;
  std::atomic<std::uint64_t> run_ns_{0};  ///< Sum of Stream::run_ns, and never less.
  std::atomic<std::uint64_t> written_off_ns_{0};
  std::atomic<std::uint32_t> known_in_a_row_{0};
  std::optional<std::uint64_t> quiet_before_;  ///< Of the polling thread.
  std::vector<std::shared_ptr<Stream>> sampled_;
};

}  // namespace sluice::intercept
