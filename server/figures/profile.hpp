#pragma once
#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/training/trainer.hpp"

namespace sluice::server {

/// Durations, of which the profile keeps the distribution. The names are the published ones.
enum class PerfItem : std::uint8_t {
  kInferQueue,         ///< A request, from the queue to its first step.
  kInferProcess,       ///< A request, from its first step to its answer.
  kTrainAdjust,        ///< From the order to a trainer until it had been obeyed.
  kInferAllocStorage,  ///< Mapping memory for a model.
  kInferLoadParam,     ///< From the begin of a load until the weights are copied.
  kCount,
};

/// The file `server-profile`: durations, events and memory over time, as published, and a line for
/// each handover. docs/reference/server-files.md describes it. Keeps its numbers in bounded
/// memory and writes the file once, at the end. Thread-safe.
class Profile {
 public:
  static constexpr std::uint64_t kSampleNs = 5'000'000;

  /// Reads the memory every 5 ms, in a thread of its own, which `read_memory` is called from.
  explicit Profile(std::function<training::MemoryUse()> read_memory);
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
  ~Profile();

  /// Of a duration that ends now.
  void took(PerfItem item, std::uint64_t ns);
  /// The weights of a model have left the device now.
  void evicted();
  /// Counts as one TrainAdjust. Its memory and weights are reported by took(), as those of every
  /// load.
  void handover(const training::Handover& handover);

  /// The file's text so far.
  [[nodiscard]] std::string text() const;
  /// Throws base::RunError if the file cannot be written.
  void write(const std::string& file) const;

 private:
  /// A distribution: exact mean and extremes, percentiles of a random part once it is large.
  struct Durations {
    std::uint64_t count = 0;
    double sum_ms = 0, max_ms = 0, min_ms = 0;
    std::vector<double> kept_ms;
  };
  struct Sample {
    std::uint64_t at_ns;
    training::MemoryUse use;
  };
  struct Event {
    std::uint64_t at_ns;
    std::string_view name;
  };
  void sample();
  void add(PerfItem item, std::uint64_t ns);
  void note(std::uint64_t at_ns, std::string_view event);
  [[nodiscard]] double ms(std::uint64_t at_ns) const;
  void write_perf(std::string& out) const;
  void write_events(std::string& out) const;
  void write_memory(std::string& out) const;
  void write_handovers(std::string& out) const;

  const std::uint64_t start_ns_;
  const std::uint64_t start_real_ns_;
  const std::function<training::MemoryUse()> read_memory_;

  mutable std::mutex mutex_;  ///< Guards all below but thread_.
  std::condition_variable wake_;
  bool stop_ = false;
  std::array<Durations, static_cast<std::size_t>(PerfItem::kCount)> durations_;
  std::mt19937_64 random_;
  std::vector<Sample> samples_;
  std::uint64_t period_ns_ = kSampleNs;
  std::vector<Event> events_;
  std::vector<training::Handover> handovers_;
  std::thread thread_;
};

}  // namespace sluice::server
