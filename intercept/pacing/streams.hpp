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
#include "intercept/pacing/sampler.hpp"
#include "shm/policy.hpp"

namespace sluice::intercept {

class Client;
class Pacer;

/// All that is kept of one stream.
struct Stream {
  /// Which stream: a handle of the program, or a context's or a thread's default stream.
  struct Key {
    CUstream handle = nullptr;    ///< nullptr for the legacy default stream.
    CUcontext context = nullptr;  ///< Of a default stream; else null, because handles are unique.
    pid_t thread = 0;             ///< Of a per-thread default stream.
    auto operator<=>(const Key&) const = default;
  };
  /// The record is to be that of another stream.
  void restart() noexcept;

  Key key;
  CUcontext context = nullptr;
  Client* client = nullptr;
  Pacer* pacer = nullptr;  ///< Of the client.

  /// Guarded by the mutex of the client's jobs. The version (process.hpp) at the last touch.
  std::uint64_t touched = 0;

  /// Guards what follows, for launching threads. Never held over a driver call that can block.
  std::mutex mutex;
  shm::Policy policy;  ///< Under which `launches` counts: another one begins anew.
  std::uint64_t launches = 0;
  std::array<CUevent, 2> group_end{};  ///< Of even and odd groups; null until first used.
  std::array<bool, 2> recorded{};
  std::uint64_t run_ns = 0;    ///< GPU time of what was launched since its last wait.
  bool owes_wait = false;      ///< The driver refused the last wait.
  bool idle = false;           ///< Nothing was launched since Pacer::write_off_idle() looked.
  std::uint64_t previous = 0;  ///< The kind of its last launch (LaunchDurations::find_in_turn).
  Sampler sampler;
};

/// The streams of this process. A record is found by its key under a lock, and remembered by each
/// thread (launch.hpp). Records are never freed, only used again, so that a thread that uses a
/// stream while another one destroys it writes into memory that exists.
class Streams {
 public:
  /// The stream that the calling thread names so. `context` is asked for default streams only.
  [[nodiscard]] static Stream::Key key_of(CUstream stream, CUcontext context) noexcept;

  /// Null if it is not known.
  [[nodiscard]] Stream* find(const Stream::Key& key);
  /// The record of the key, new or found.
  [[nodiscard]] Stream* add(const Stream::Key& key, CUcontext context, Client& client,
                            Pacer& pacer);

  /// Visits every stream, under the lock.
  template <class Visit>
  void for_each(Visit visit) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, stream] : known_) visit(*stream);
  }

  /// Takes out those that match; `end` is called for each without the lock, and then the record
  /// may be used again.
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

  /// Whether there are so many that those of ended threads should be looked for; no call tells of
  /// their end.
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
