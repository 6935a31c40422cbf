#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "intercept/driver/driver.hpp"
#include "intercept/pacing/run_ahead.hpp"
#include "intercept/pacing/sampler.hpp"
#include "shm/policy.hpp"

namespace sluice::intercept {

class Client;
class Pacer;

/// A lock for a few instructions of launching threads. It is taken with an exchange and released
/// with a plain store: a mutex takes two calls and two locked instructions. The holder makes no
/// call that can block. A thread that finds the lock taken for long naps, because the holder has
/// lost its processor, perhaps to this very thread.
class LaunchLock {
 public:
  void lock() noexcept {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !taken_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  void wait() noexcept;
  std::atomic<bool> taken_{false};
};

/// Everything that is kept of one stream.
struct Stream {
  /// Which stream: a handle of the program, or a context's or a thread's default stream.
  struct Key {
    CUstream handle = nullptr;    ///< nullptr for the legacy default stream.
    CUcontext context = nullptr;  ///< Only of a default stream, because other handles are unique.
    pid_t thread = 0;             ///< Of a per-thread default stream.
    auto operator<=>(const Key&) const = default;
  };
  /// Reuses the record for another stream.
  void restart() noexcept;
  /// The first launch under a policy begins a group. The caller holds the lock.
  void set_policy(const shm::Policy& now) noexcept {
    if (policy == now) [[likely]]
      return;
    policy = now;
    launches = 0;
  }

  Key key;
  CUcontext context = nullptr;
  Client* client = nullptr;
  Pacer* pacer = nullptr;  ///< The pacer of `client`.

  /// A wait for its work took too long, and it has made no progress since (Pacer::wait).
  std::atomic<bool> stuck{false};

  /// The process's version (process.hpp) at the last touch. Guarded by the mutex of the client's
  /// jobs.
  std::uint64_t touched = 0;

  /// Guards the members down to `previous`, for launching threads. Never held during a driver call.
  LaunchLock lock;
  shm::Policy policy;          ///< The policy of `launches`; a new policy counts from 0.
  std::uint32_t launches = 0;  ///< In the current pair of groups.
  std::uint64_t run_ns = 0;    ///< GPU time of the launches since the last wait.
  std::atomic<std::uint64_t>* account = nullptr;  ///< The sum that includes run_ns.
  bool owes_wait = false;                         ///< The driver refused the last wait.
  bool idle = false;           ///< Nothing was launched since Pacer::write_off_idle() looked.
  std::uint64_t previous = 0;  ///< The kind of its last launch (LaunchDurations::find_in_turn).

  /// Guards the events. Never held during a driver call that can wait for the GPU.
  std::mutex events;
  std::array<CUevent, 2> group_end{};  ///< For even and odd groups; null until first used.
  std::array<bool, 2> recorded{};

  Sampler sampler;
  RunAhead run_ahead;
};

/// The streams of this process. A record is found by its key under a lock, and each thread
/// remembers it (launch.hpp). Records are reused but never freed, so a thread that uses a stream
/// while another thread destroys the stream writes into memory that exists.
class Streams {
 public:
  /// Whether the handle means a default stream: which one depends on the calling thread.
  [[nodiscard]] static bool is_default(CUstream stream) noexcept {
    return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  }

  /// The key of the stream to which the calling thread refers by this handle. `context` matters for
  /// default streams only.
  [[nodiscard]] static Stream::Key key_of(CUstream stream, CUcontext context) noexcept;

  /// Null if the stream is not known.
  [[nodiscard]] Stream* find(const Stream::Key& key);
  /// The record of the key, new or found.
  [[nodiscard]] Stream* add(const Stream::Key& key, CUcontext context, Client& client,
                            Pacer& pacer);

  /// Visits every stream, with the lock held.
  template <class Visit>
  void for_each(Visit visit) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, stream] : known_) visit(*stream);
  }

  /// Removes the streams for which `which` is true. Calls `end` for each without the lock; after
  /// that the record may be reused.
  template <class Which, class End>
  void remove(Which which, End end) {
    std::vector<Stream*> ended;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = known_.begin(); at != known_.end();) {
        if (which(*at->second)) {
          ended.push_back(at->second);
          at = known_.erase(at);
        } else {
          ++at;
        }
      }
    }
    for (Stream* stream : ended) end(*stream);
    const std::lock_guard lock(mutex_);
    free_.insert(free_.end(), ended.begin(), ended.end());
  }

  /// Whether there are so many that the streams of ended threads should be removed; no call reports
  /// the end of a thread.
  [[nodiscard]] bool too_many();

 private:
  static constexpr std::size_t kMany = 64;
  std::mutex mutex_;
  std::map<Stream::Key, Stream*> known_;
  std::deque<Stream> records_;
  std::vector<Stream*> free_;
  std::size_t many_ = kMany;
};

}  // namespace sluice::intercept
