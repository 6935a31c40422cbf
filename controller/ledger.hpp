#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "shm/gain.hpp"
#include "shm/snapshot.hpp"

/// What the GPUs of a session were used for, and what jobs of critical clients took next to best
/// effort and without it (docs/reference/gain.md). Pure: the time is that of the snapshots.
namespace sluice::controller {

/// Counts durations, to 1 %.
class DurationBins {
 public:
  void add(std::uint64_t ns);
  void add(const DurationBins& other);
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Nothing if there are fewer durations than say anything about a p99.
  [[nodiscard]] std::optional<std::uint64_t> p99_ns() const;

  static constexpr std::uint64_t kLeast = 100;

 private:
  std::vector<std::uint32_t> bins_;
  std::uint64_t count_ = 0;
};

/// One GPU, while a critical client lived on it.
struct DeviceUse {
  /// GPU time of some clients, from learned durations.
  struct Part {
    std::uint64_t ns = 0;          ///< While it was known.
    std::uint64_t unknown_ns = 0;  ///< How long it was not known.
  };
  std::uint64_t shared_ns = 0;  ///< How long that was.
  Part critical;
  Part best_effort;
  std::uint64_t unknown_ns = 0;  ///< How long one of the two was not known.
  /// The part of the time of best effort in which no job or step of a critical client wanted the
  /// GPU.
  std::uint64_t idle_before_ns = 0;
  std::uint64_t seen_ns = 0;  ///< How long the driver said how busy the GPU was,
  std::uint64_t busy_ns = 0;  ///< and how long it was busy then.

  void add(const DeviceUse& other) noexcept;
};

/// Jobs of a critical client.
struct JobUse {
  DurationBins alone;  ///< While no client of lower priority worked.
  DurationBins mixed;  ///< The others.
  std::uint64_t of_target = 0;
  std::uint64_t kept = 0;

  void add(const JobUse& other);
};

class Ledger {
 public:
  /// The gain is that of the last day at least, and of two days at most.
  static constexpr std::uint64_t kPeriodNs = 24ULL * 3600 * 1'000'000'000;
  /// The first jobs of a client load and compile.
  static constexpr std::uint64_t kFirstJobs = 16;

  /// Goes on from what an earlier controller of the board had.
  explicit Ledger(const shm::Gain& before = {});

  /// Call it every second or two. `busy`: the part of the time that a GPU was busy lately, as the
  /// driver says, by device.
  void look(shm::Snapshot now, const std::map<int, double>& busy = {});

  [[nodiscard]] shm::Gain gain() const;
  /// Since this ledger began, by device.
  [[nodiscard]] const std::map<int, DeviceUse>& devices() const noexcept { return devices_; }
  /// Of the clients that live, by slot.
  [[nodiscard]] std::map<int, JobUse> jobs() const;

 private:
  struct Period {
    std::uint64_t since_ns = 0;
    std::map<int, DeviceUse> devices{};  ///< By their indices; kBefore: what is on the board.
    std::map<int, JobUse> jobs{};        ///< By slot.
  };

  static constexpr int kBefore = -1;

  void count_device(const shm::Snapshot& now, int device, std::optional<double> busy);
  [[nodiscard]] DeviceUse::Part part_of(const shm::Snapshot& now, int device, bool critical) const;
  [[nodiscard]] std::uint64_t wanted_ns(const shm::Snapshot& now, int device) const;
  void count_jobs(const shm::Snapshot& now, const shm::ClientSnapshot& client);
  [[nodiscard]] const shm::ClientSnapshot* earlier(const shm::ClientSnapshot& client) const;
  [[nodiscard]] std::uint64_t alone_ns(int slot, const JobUse& use) const;
  [[nodiscard]] bool works(const shm::ClientSnapshot& client) const;
  [[nodiscard]] bool any_below_works(const shm::Snapshot& now,
                                     const shm::ClientSnapshot& client) const;

  std::optional<shm::Snapshot> before_;
  std::map<int, DeviceUse> devices_;
  /// By slot: since when no client of lower priority works. Later than now: one does.
  std::map<int, std::uint64_t> quiet_since_ns_;
  /// By slot: p99 with closed gates, as the law of a target knew it last. It learns now and then.
  std::map<int, std::uint64_t> closed_p99_ns_;
  Period earlier_;
  Period period_;
};

}  // namespace sluice::controller
