#pragma once
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "base/file_id.hpp"
#include "intercept/driver/channel_groups.hpp"
#include "intercept/driver/entries.hpp"
#include "intercept/driver/event_marks.hpp"
#include "shm/board.hpp"
#include "shm/messages.hpp"

namespace sluice::intercept {

struct Capture;
class Interposer;
class Trace;
class WaitFile;

inline constexpr std::size_t kMostDevices = 64;

/// A query that one of our threads has sent to the driver; see DriverQuery.
struct QueryNote {
  std::atomic<bool> taken{false};
  std::atomic<bool> asking{false};
  std::atomic<CUcontext> context{nullptr};
  std::atomic<CUstream> stream{nullptr};
};

/// What a thread of the program is about to end, or to capture; see QueryBan.
struct BanNote {
  enum class About : std::uint8_t { kNothing, kStream, kContext };
  std::atomic<pid_t> thread{0};  ///< The note is void if the thread was cancelled; 0: free.
  std::atomic<About> about{About::kNothing};
  std::atomic<CUcontext> context{nullptr};
  std::atomic<CUstream> stream{nullptr};
};

/// The primary context of a device (contexts.hpp).
struct Primary {
  std::atomic<CUcontext> context{nullptr};
  std::atomic<std::uint64_t> number{0};  ///< ContextId::number
  std::atomic<int> retains{0};           ///< Threads inside a retain.
};

/// The kernel of the early switch on one device; see EarlySwitch.
struct SwitchKernel {
  std::atomic<bool> loading{false};
  std::atomic<CUcontext> context{nullptr};
  std::atomic<std::uint64_t> context_number{0};
  std::atomic<CUstream> stream{nullptr};
  std::atomic<CUfunction> function{nullptr};  ///< Written last; null if there is no early switch.
};

/// The captures that may be open (captures.hpp). They are known before there is an interposer.
struct Captures {
  std::mutex mutex;                 ///< Guards all but `open` and `unseen`.
  Capture* first = nullptr;         ///< A list, never freed as a whole.
  std::uint64_t begun = 0;          ///< How many have begun.
  std::atomic<int> open{0};         ///< The length of the list, and one more if `unseen`.
  std::atomic<bool> unseen{false};  ///< Captures may begin that are not in the list.
};

/// What passes by: lookups of driver entries that give the GPU work and have no hook, and libraries
/// that reach the driver past the hooks (LoadedLibraries).
class Unhooked {
 public:
  void note(std::string_view name) noexcept {
    const std::lock_guard lock(mutex_);
    ++asked_;
    name_.fill('\0');
    name.copy(name_.data(), name_.size() - 1);
  }
  [[nodiscard]] std::array<char, 32> name() noexcept {
    const std::lock_guard lock(mutex_);
    return name_;
  }
  void show_in(shm::Slot& slot) noexcept {
    const std::lock_guard lock(mutex_);
    slot.unhooked_name = name_;
    slot.unhooked_lookups.store(asked_);
  }

 private:
  std::mutex mutex_;
  std::uint32_t asked_ = 0;
  std::array<char, 32> name_{};
};

/// What threads share of the draws for the estimate of the GPU time; see LaunchDraw. Index 0 is for
/// kernels, 1 for graphs.
struct LaunchDraws {
  static constexpr std::uint32_t kIntervalNs = 250'000;
  std::atomic<std::uint32_t> requests{0};  ///< Each thread draws once after this has changed.
  std::atomic<std::uint32_t> interval_ns{kIntervalNs};
  std::array<std::atomic<std::uint32_t>, 2> drawn{};
};

/// All mutable state of the library outside its threads, and the only global.
/// Constant-initialised: valid before any constructor has run and after every destructor.
struct Process {
  /// What threads remember about streams (launch.hpp) becomes invalid when this changes: a job
  /// ended, a stream or context was destroyed, a capture began, the policy changed. It starts at 1,
  /// so version 0 is never valid.
  std::atomic<std::uint64_t> version{1};
  /// Changes when code is unloaded: what was learned of kernels before is in doubt from then on.
  std::atomic<std::uint32_t> code_epoch{0};
  /// Nothing of ours may run in a forked child: threads that do not exist there may have held our
  /// locks at the fork, and the slot is the parent's.
  std::atomic<bool> forked_child{false};
  /// Set at exit. From then on we make no driver calls of our own, because the driver is being torn
  /// down.
  std::atomic<bool> leaving{false};
  /// Set by the first explicit begin or announcement. From then on jobs are what the program says.
  std::atomic<bool> explicit_jobs{false};
  /// The process has opened memory or events of another process or device: its work may wait for
  /// work there.
  std::atomic<bool> connected{false};
  /// Set by the first announcement. From then on no job of this process is predicted.
  std::atomic<bool> announced_jobs{false};
  /// Target::pack() of what the program itself has set, for a forked child that attaches on its
  /// own; kKeepTarget for nothing.
  std::atomic<std::uint64_t> own_target{shm::kKeepTarget};
  /// Transparent jobs that are open and whose end matters to somebody.
  std::atomic<int> open_jobs{0};
  EventMarks event_marks;
  /// The graph that was launched last, since a step of a client ended.
  std::atomic<CUgraphExec> last_graph{nullptr};
  std::atomic<bool> exit_handlers_installed{false};
  std::atomic<bool> said_forked_child{false};
  std::atomic<bool> said_ungated_graph{false};
  /// The Level of SLUICE_LOG; -1 until the first line that may be written.
  std::atomic<int> log_level{-1};
  /// Null unless this process is traced.
  std::atomic<Trace*> trace{nullptr};
  /// Null unless the waits of this process are counted for a measurement.
  std::atomic<WaitFile*> wait_file{nullptr};
  /// The process that made the interposer; 0: there is none. A child that was made without
  /// pthread_atfork handlers (by a bare clone, by vfork) has another pid.
  std::atomic<pid_t> owner{0};
  /// Null until the first driver call that needs it; never destroyed. Owns the clients, and what is
  /// kept of streams, graphs and jobs.
  std::atomic<Interposer*> interposer{nullptr};

  Captures captures;

  /// The real driver (driver.hpp), complete once it is ready, and the file behind descriptor 2 at
  /// that moment.
  std::atomic<bool> driver_ready{false};
  base::FileId standard_error;
  std::mutex driver_writing;
  Driver driver;
  std::array<Primary, kMostDevices> primaries{};
  std::mutex primaries_noting;  ///< Of one thread at a time; see PrimaryRetain.
  std::array<SwitchKernel, kMostDevices> switch_kernels{};
  Unhooked unhooked;
  ChannelGroups channel_groups;

  /// A child that is forked while a thread of ours has the loader's lock would find it locked for
  /// ever. So a fork waits for the end of a look at the libraries, and no look begins during one.
  std::atomic<bool> looks_at_libraries{false};
  std::atomic<int> forks{0};

  /// A query writes its note and then reads the bans. A ban writes its note and then reads those of
  /// the queries. So at least one of the two sees the other. One note for each querying thread
  /// (those that poll and that switch, of each device): with a shared note, the end of one query
  /// would be taken for the end of the other.
  std::array<QueryNote, 64> query_notes{};
  std::array<BanNote, 32> ban_notes{};
  /// Bans of all queries: at exit, and of threads for which no note was left.
  std::atomic<int> queries_forbidden{0};

  /// The thread that owns each stripe of the launch counters (launch_count.hpp); 0 for none.
  std::array<std::atomic<pid_t>, shm::kLaunchStripes> stripe_owners{};
  /// Whether membarrier(2) works; -1 until somebody has tried.
  std::atomic<int> membarrier_works{-1};
  LaunchDraws draws;

  void forget_remembered() noexcept { version.fetch_add(1); }
};

extern constinit Process g_process;

/// Makes a system call, so it is not for a launch that pass() lets through.
inline bool in_forked_child() noexcept {
  if (g_process.forked_child.load(std::memory_order_relaxed)) return true;
  const pid_t owner = g_process.owner.load(std::memory_order_relaxed);
  return owner != 0 && owner != getpid();
}

}  // namespace sluice::intercept
