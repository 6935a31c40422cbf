#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/node_service.hpp"
#include "intercept/client/client.hpp"
#include "intercept/client/config.hpp"
#include "intercept/client/job_book.hpp"
#include "intercept/client/watcher.hpp"
#include "intercept/driver/loaded.hpp"
#include "intercept/driver/threads.hpp"
#include "intercept/pacing/graphs.hpp"
#include "intercept/pacing/streams.hpp"
#include "intercept/slot/held_memory.hpp"
#include "shm/mapping.hpp"

namespace sluice::intercept {

/// The place of this process in the session: attach, fork and exit. Made by the first driver call
/// that needs it and never destroyed.
class Interposer {
 public:
  /// Takes memory.
  static Interposer& instance();
  /// Null if no call has needed it yet.
  static Interposer* existing() noexcept { return g_process.interposer.load(); }

  [[nodiscard]] const Config& config() const noexcept { return config_; }
  [[nodiscard]] Clients& clients() noexcept { return clients_; }
  [[nodiscard]] Streams& streams() noexcept { return streams_; }
  [[nodiscard]] GraphBook& graphs() noexcept { return graphs_; }
  [[nodiscard]] JobBooks& jobs() noexcept { return jobs_; }
  [[nodiscard]] HeldMemory& held_memory() noexcept { return held_memory_; }

  /// See stream_of() in launch.hpp. Allocates. Not for a forked child.
  [[nodiscard]] Stream* stream_of(CUstream stream, bool attach);
  /// The client of the device of the calling thread's context. Attaches one if there is none and
  /// `attach` is true.
  Client* client_here(bool attach) noexcept;
  /// The same for a device.
  Client* client_on(CUdevice device, bool attach) noexcept;
  /// The client of the device of the calling thread's context; the only client, if there is one
  /// only. May be null.
  Client* client_that_waits() noexcept;
  /// The client to which the calling thread's calls of the C API about memory refer: that of its
  /// context's device, attached if necessary, or else the first client. Null if there is none.
  Client* client_of_memory() noexcept;
  /// The client of the context's device, or the only client if there is one only.
  [[nodiscard]] Client* client_of(CUcontext context) noexcept;

  /// Counts launches while the process has no slot, by launch entry.
  [[nodiscard]] shm::Word& unattached_count(Entry entry) noexcept {
    return unattached_[static_cast<std::size_t>(entry)][shm::Count::kBypassUnattached];
  }
  /// Takes back a launch that unattached_count() counted, or that the client's slot has by now.
  void uncount_unattached(Client& client, Entry entry) noexcept;
  /// Whether an attach may succeed now. If not, a launch is only counted until the process's
  /// version changes.
  [[nodiscard]] bool may_attach() const noexcept;
  /// Whether the user or the site may have limited this process's memory.
  [[nodiscard]] bool may_limit_memory() const noexcept {
    return config_.memory != 0 || config_.session == base::kNodeSession;
  }
  /// The program has learned that some of its work is done.
  void work_may_be_done() noexcept {
    clients_.for_each([](Client& client) { client.work_may_be_done(); });
  }
  /// Whether work_may_be_done() would change nothing.
  [[nodiscard]] bool all_ends_are_hinted() noexcept {
    bool all = true;
    clients_.for_each([&all](const Client& client) { all = all && client.end_is_hinted(); });
    return all;
  }
  /// For records that were taken out of streams(). `gone`: their events have ended too. The caller
  /// holds a QueryBan, or is the only thread that queries them.
  void end_streams(Stream* taken, bool gone) noexcept;
  /// The same for streams that live on. The events of a record that another one has replaced
  /// meanwhile are left to the context, because a launch may be using them.
  void put_streams_back(Stream* taken) noexcept;
  /// For a context that has ended (a null handle: unknown which one). The caller holds a QueryBan.
  /// Ends all that is kept about it, but for streams whose records are taken out already.
  void context_ended(const ContextId& context) noexcept;
  /// For polling threads: ends the jobs of streams whose end blocks, or whose thread was cancelled.
  void look_at_ending_streams() noexcept;
  /// Asks the driver what memory pools have taken. `of`: see HeldMemory::ask_pools().
  void refresh_pools(CUdevice of = HeldMemory::kAll) noexcept;
  /// Writes the counts of Unhooked into every slot.
  void show_unhooked() noexcept;
  /// For all devices of the process, now and later.
  void set_target(shm::Target target) noexcept;
  /// Warns, at the first call.
  static void report_forked_child() noexcept;
  /// Whether a client of this process obeys its gate. False in a forked child.
  [[nodiscard]] bool attached() noexcept;

 private:
  Interposer();
  Client* attach(CUdevice device) noexcept;
  bool may_be_gated() noexcept;
  /// Of the next client. Null if this process may have no more.
  [[nodiscard]] Poller* next_poller() noexcept;
  Client* attach_alone(CUdevice device) noexcept;
  Client* attach_now(CUdevice device);
  /// If there is no seat, `connection` is -1, or the connection on which a silent controller was
  /// asked.
  std::optional<Seat> ask_for_seat(CUdevice device, int& connection) noexcept;
  std::optional<Seat> take_seat(int slot, std::uint32_t generation) noexcept;
  bool map_board(std::uint64_t board_id) noexcept;
  void adopt_counts(Client& client) noexcept;
  void refuse(std::string_view why) noexcept;
  /// For an errno of a connection to the controller.
  void refuse_for(int error) noexcept;

  /// A step of the keeper's thread.
  Worker::Sleep keep() noexcept;

  static void install_handlers() noexcept;
  static void leave_at_exit() noexcept;
  static void leave(Client& client) noexcept;
  static void detach_child() noexcept;

  Config config_;
  std::atomic<std::uint64_t> target_{config_.target.pack()};
  std::string socket_path_;
  Clients clients_;
  Streams streams_;
  GraphBook graphs_;
  HeldMemory held_memory_{config_.memory};
  std::array<Poller, Clients::kMost> pollers_;  ///< In the order of the clients.
  Worker announcer_;
  Worker keeper_;
  // Of the keeper's thread.
  LoadedLibraries loaded_;
  std::uint64_t next_look_ns_ = 0;
  JobBooks jobs_;
  Watcher watcher_;
  std::mutex attach_mutex_;
  std::optional<shm::BoardMapping> mapping_;
  std::atomic<bool> refused_{
      false};  ///< The session refused this process for good: do not ask again.
  std::atomic<bool> warned_{false};
  std::atomic<bool> trace_due_{!config_.trace.empty()};
  std::atomic<bool> wait_file_due_{!config_.waits.empty()};
  std::uint64_t next_attach_ns_ = 0;  ///< Under attach_mutex_.
  std::array<shm::EntryCounters, shm::kMaxEntries> unattached_{};
};

}  // namespace sluice::intercept
