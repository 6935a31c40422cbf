#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "intercept/driver/contexts.hpp"
#include "intercept/driver/driver.hpp"
#include "intercept/pacing/event_pool.hpp"
#include "intercept/pacing/run_ahead.hpp"
#include "intercept/pacing/sampler.hpp"
#include "shm/policy.hpp"

namespace sluice::intercept {

class Client;
class Pacer;
class StreamList;

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
  /// For another stream. The record belongs to nobody now.
  void restart(const Key& of, const ContextId& in, ContextEvents& of_context) noexcept;
  /// The first launch under a policy begins a group. The caller holds the lock.
  void set_policy(const shm::Policy& now) noexcept {
    if (policy == now) [[likely]]
      return;
    policy = now;
    launches = 0;
  }

  Key key;
  CUcontext context = nullptr;
  std::uint64_t context_number = 0;  ///< ContextId::number
  // Of a record that is taken out of the known ones. Guarded by the lock of Streams.
  pid_t taken_by = 0;  ///< The thread; 0: it is not taken out.
  std::uint64_t taken_ns = 0;
  bool given_up = false;  ///< The call blocks, and the work in the stream counts as done.
  // The record is reused for streams of the same client only, so its links stay in that client's
  // jobs.
  Client* client = nullptr;
  Pacer* pacer = nullptr;  ///< The pacer of `client`.
  Stream* next = nullptr;  ///< Among records that were taken out, or that are free.

  /// A wait for its work took too long, and it has made no progress since (Pacer::wait).
  std::atomic<bool> stuck{false};

  // Guarded by the mutex of the client's jobs, down to `after`.
  std::uint64_t touched = 0;        ///< The process's version (process.hpp) at the last touch.
  std::uint64_t given_ns = 0;       ///< When it was last seen to be given work.
  std::uint64_t progress_ns = 0;    ///< Its last progress that was seen,
  std::uint64_t quiet_from_ns = 0;  ///< and for how long its process had been running by then.
  std::uint64_t outlived = 0;  ///< Ends of all other work since its progress at outlives_from_ns.
  std::uint64_t outlives_from_ns = 0;
  StreamList* list = nullptr;  ///< Busy, stalled, or ended in the last job; null: none of them.
  Stream* before = nullptr;
  Stream* after = nullptr;
  /// Cleared by whoever ends the stream. A launch that outlasts its stream makes nothing busy.
  std::atomic<bool> lives{true};

  /// Guards the members down to `previous`, for launching threads. Never held during a driver call.
  LaunchLock lock;
  shm::Policy policy;          ///< The policy of `launches`; a new policy counts from 0.
  std::uint32_t launches = 0;  ///< In the current pair of groups.
  std::uint64_t run_ns = 0;    ///< GPU time of the launches since the last wait.
  std::uint32_t accounts = 0;  ///< How often run_ns has begun anew.
  std::atomic<std::uint64_t>* account = nullptr;  ///< The sum that includes run_ns.
  bool owes_wait = false;                         ///< The driver refused the last wait.
  bool idle = false;           ///< Nothing was launched since Pacer::write_off_idle() looked.
  std::uint64_t previous = 0;  ///< The kind of its last launch (LaunchDurations::find_in_turn).

  /// Where a group ends. While a thread records the event, which may wait for the GPU, the event is
  /// that thread's.
  struct GroupEnd {
    CUevent event = nullptr;
    bool recorded = false;
    bool recording = false;
  };
  std::mutex events;  ///< Guards the members down to `ended`. Never held during a driver call.
  std::array<GroupEnd, 2> group_ends{};  ///< For even and odd groups.
  std::uint32_t ended = 0;               ///< Streams that had this record before.

  std::atomic<int> arrivals{-1};   ///< Its index in Arrivals; -1: none yet.
  ContextEvents* pools = nullptr;  ///< Of its context.
  Sampler sampler;
  std::atomic<bool> sampled{false};  ///< In the list of Pacer::collect_samples().
  Stream* next_sampled = nullptr;
  RunAhead run_ahead;
};

/// Streams linked through their records: nothing is allocated, and each step takes the same time
/// whatever the length. A stream is in one list at most. The owner of the list guards it.
class StreamList {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool has(const Stream& stream) const noexcept { return stream.list == this; }
  /// Takes the stream out of the list that it is in.
  void add(Stream& stream) noexcept;
  static void remove(Stream& stream) noexcept;
  void clear() noexcept {
    while (first_ != nullptr) remove(*first_);
  }
  /// `visit` may move the stream to another list.
  template <class Visit>
  void for_each(Visit visit) {
    for (Stream* at = first_; at != nullptr;) {
      Stream& stream = *at;
      at = at->after;
      visit(stream);
    }
  }

 private:
  Stream* first_ = nullptr;
  Stream* last_ = nullptr;
  std::size_t size_ = 0;
};

/// The streams of this process. A record is found by its key under a lock, and each thread
/// remembers it (launch.hpp). Records are reused but never freed, so a thread that uses a stream
/// while another thread destroys the stream writes into memory that exists.
///
/// The driver gives the handle of a destroyed stream or context out again at once. So a record is
/// taken out before the driver's call that ends its stream.
class Streams {
 public:
  /// The key of the stream to which the calling thread refers by this handle. `context` matters for
  /// default streams only.
  [[nodiscard]] static Stream::Key key_of(CUstream stream, CUcontext context) noexcept;

  /// Null if the stream is not known.
  [[nodiscard]] Stream* find(const Stream::Key& key);
  /// The record of the key, new or found. No call reports the end of a thread, so a thread's
  /// default stream may get the record of a thread of the same context that has ended, with its
  /// events.
  [[nodiscard]] Stream* add(const Stream::Key& key, const ContextId& context, ContextEvents& pools,
                            Client& client, Pacer& pacer);

  /// Visits every stream, with the lock held.
  template <class Visit>
  void for_each(Visit visit) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, stream] : known_) visit(*stream);
  }

  /// The names of the stream; after a while the record may be another's.
  struct Names {
    Stream::Key key;
    CUcontext context;
  };
  [[nodiscard]] Names names_of(const Stream& stream);

  /// Takes the record of a stream, or those of a context (a null handle: of all), out of the known
  /// ones. What threads remember of them is void. They are linked by Stream::next; reuse() or
  /// put_back() must follow.
  [[nodiscard]] Stream* take_out(const Stream::Key& key) noexcept;
  [[nodiscard]] Stream* take_out(const ContextId& context) noexcept;
  /// The records that a thread has taken out which was cancelled in the driver's call. Whether
  /// their streams live is unknown, so the driver must not be asked about them.
  [[nodiscard]] Stream* take_lost() noexcept;
  /// The records were ended, and may be used for other streams.
  void reuse(Stream* ended) noexcept;
  /// Visits each record that is taken out, with the lock held.
  template <class Visit>
  void for_each_taken(Visit visit) {
    const std::lock_guard lock(mutex_);
    for (auto at = records_.begin(); taken_ != 0 && at != records_.end(); ++at) {
      if (at->taken_by != 0) visit(*at);
    }
  }
  /// The streams live on. Returns those that have to be ended, because there is another record of
  /// the stream by now, or no memory. `revive` is called for each of the others that was given up,
  /// with the lock held.
  template <class Revive>
  [[nodiscard]] Stream* put_back(Stream* taken, Revive revive) noexcept {
    Stream* superfluous = nullptr;
    const std::lock_guard lock(mutex_);
    while (taken != nullptr) {
      Stream& stream = *taken;
      taken = std::exchange(stream.next, nullptr);
      if (!put_back(stream)) {
        stream.next = std::exchange(superfluous, &stream);
      } else if (std::exchange(stream.given_up, false)) {
        stream.lives.store(true);
        revive(stream);
      }
    }
    return superfluous;
  }

 private:
  [[nodiscard]] Stream* of_ended_thread(const Stream::Key& key);
  void take(Stream& stream, Stream*& taken) noexcept;
  [[nodiscard]] bool put_back(Stream& stream) noexcept;

  std::mutex mutex_;
  std::map<Stream::Key, Stream*> known_;
  std::deque<Stream> records_;
  std::map<Client*, Stream*> free_;  ///< Linked by Stream::next.
  pid_t looked_at_ = 0;              ///< The thread after which of_ended_thread() looks on.
  std::size_t taken_ = 0;            ///< Records that are taken out.
};

}  // namespace sluice::intercept
