#pragma once
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/server.hpp"
#include "shm/outside_word.hpp"
#include "shm/view.hpp"
#include "tests/simulation/fibers.hpp"
#include "tests/simulation/gpu.hpp"

namespace sluice::simulation {

inline constexpr pid_t kFirstPid = 101;
inline constexpr std::uint64_t kMaxHoldNs = 1'000'000'000;

/// How much of each of the last seconds somebody has used the GPU.
class UseBySecond {
 public:
  static constexpr std::uint64_t kSecondNs = 1'000'000'000;
  /// `passed_ns` before `now_ns` are over.
  void add(std::uint64_t used_ns, std::uint64_t now_ns) {
    for (; second_ < now_ns / kSecondNs; ++second_) used_ns_[(second_ + 1) % kKept] = 0;
    used_ns_[second_ % kKept] += used_ns;
  }
  /// In so many seconds that are over.
  [[nodiscard]] std::uint64_t of_last(std::size_t seconds) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 1; i <= seconds; ++i) sum += used_ns_[(second_ + kKept - i) % kKept];
    return sum;
  }

 private:
  static constexpr std::size_t kKept = 16;
  std::array<std::uint64_t, kKept> used_ns_{};
  std::uint64_t second_ = 1000;  ///< Where the time of a seed begins.
};

/// While it lives, all memory that is taken belongs to the seed.
class SeedMemory {
 public:
  SeedMemory();
  ~SeedMemory();
};

/// A process with the real interposer.
struct Process : Scope {
  pid_t pid = 0;
  std::uint8_t priority = 0;
  int device = 0;
  bool reader = false;  ///< It may only read the board.
  bool explicit_jobs = false;
  const char* policy = "gate";
  const char* slice = "auto";
  bool long_slices = false;    ///< The site lets it have a longer slice than the driver's.
  bool gpu_time = false;       ///< Its GPU time is estimated.
  std::uint32_t slice_us = 0;  ///< What the driver has; 0: its own.
  std::uint64_t slice_ns = 0;  ///< When it has last set that, or refused to.
  UseBySecond use;             ///< Of the GPU.
  bool by_law = false;
  std::uint64_t host_word = 0;  ///< What a parked stream waits for, and what it is now.
  std::uint64_t parked = 0;
  /// What it does in the steady time.
  enum class Role : std::uint8_t { kNeverIdle, kRhythm, kParked, kBatch, kSlight };
  Role role = Role::kSlight;
  std::uint64_t held_idle_ns = 0, open_idle_ns = 0;  ///< While those above did nothing.
  std::uint64_t fed_ns = 0;                          ///< When it could run last.
  // For how long something has been wrong with its slice.
  std::uint64_t long_ns = 0, paid_ns = 0, short_ns = 0, untrue_ns = 0, several_ns = 0;
  std::array<GpuContext, 2> contexts;  ///< The first one is the primary one.
  std::vector<GpuStream> streams{2};   ///< Each in a context of its own.
  void (*at_exit)() = nullptr;
  int busy_threads = 0;         ///< Threads of the program that have not ended.
  int calls = 0;                ///< Launches and synchronising calls of it that have not returned.
  int open_jobs = 0;            ///< Explicit ones.
  bool exited = false;          ///< Its exit handlers have run.
  bool killed = false;          ///< Its watcher is no more; other threads may run for a moment.
  std::uint64_t gone_turn = 0;  ///< When they are no more either.
  bool gone = false;
  std::uint64_t killed_ns = 0;
  std::uint64_t stopped_at_ns = 0;
  std::uint64_t waited_ns = 0;         ///< When its last wait of max_hold or longer ended.
  bool changed = false;                ///< Somebody has changed its policy or priority.
  std::uint64_t progress_ns = 0;       ///< Its last launch, or synchronising call that returned.
  std::uint64_t seen_progress_ns = 0;  ///< The same, of calls that it made as a client.
};

/// A connection between a process and the controller.
struct Link {
  static constexpr int kFirst = 1'000'000;  ///< Its descriptors begin here.
  Process* client = nullptr;
  controller::Connection at_controller;
  std::deque<shm::Request> requests;
  std::deque<shm::Report> reports;
  std::optional<shm::Reply> reply;
  bool client_closed = false;
  bool controller_closed = false;
};

struct Options {
  std::uint64_t steps = 3000;
  bool trace = false;
  bool steady = false;
};

/// One seed: some processes, a controller and a GPU, and what happens to them.
class World {
 public:
  World(std::uint64_t seed, const Options& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The first broken invariant; empty if there is none.
  std::string run();

  /// The process of the running fiber.
  [[nodiscard]] Process& running() { return static_cast<Process&>(*fibers.current->scope); }
  [[nodiscard]] Process* with_pid(pid_t pid) {
    const auto index = static_cast<std::size_t>(pid - kFirstPid);
    return index < processes.size() ? processes[index].get() : nullptr;
  }
  void broken(std::string what);  ///< The first one counts.
  [[nodiscard]] bool peaceful() const { return peaceful_; }

  // For the stand-ins of the system.
  [[nodiscard]] bool loses_wake(const void* word);
  [[nodiscard]] bool is_connection(int file) const;
  [[nodiscard]] bool has_hung_up(int file) const;
  [[nodiscard]] bool has_reply(int file) const;
  int hang_up(int file);
  int connect();
  Link& link(int file) { return *links[static_cast<std::size_t>(file - Link::kFirst)]; }
  struct Launched {
    bool paced;    ///< The policy must have put waits between launches.
    bool counted;  ///< The process is a client.
  };
  /// For the driver: a launch reaches it.
  Launched launched(GpuStream& stream);

  Fibers fibers;
  shm::Board& board;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<std::unique_ptr<Process>> processes;

 private:
  struct Controller;
  struct Seen;  ///< invariants.cpp
  // world.cpp
  void start_controller();
  void kill_controller();
  void kill(Process& process);
  void bury(Process& process);
  void control();
  void look_outside(std::uint64_t now_ns);
  void nature();
  bool turn();
  void pass(std::uint64_t ns);
  void await_programs();
  void say(const std::string& what) const;
  // programs.cpp
  void start_process();
  void program(Process& process, std::uint64_t seed);
  void last_act(Process& process);
  void act(Process& process, Random& draws, std::uint64_t& announced);
  void launch(Process& process, GpuStream& stream, std::uint64_t ns, GpuStream* other = nullptr);
  void synchronise(Process& process, GpuStream& stream);
  void park(Process& process, GpuStream& stream, std::uint64_t value);
  void end_and_make(GpuStream& stream, bool context);
  [[nodiscard]] GpuStream* one_below(const Process& process);
  void change(Process& process, bool priority);
  // invariants.cpp
  void prepare_to_look();
  [[nodiscard]] int slot_of(const Process& process);
  [[nodiscard]] shm::Slot& slot(int index) { return board.slots[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Process* client_of(int slot);
  [[nodiscard]] std::uint64_t waits_since(const Process& process, bool attached) const;
  [[nodiscard]] bool is_outranked(int slot);
  void launch_returned(Process& process, GpuStream& stream, std::uint64_t took_ns);
  [[nodiscard]] bool should_hold(int holder, int target);
  void look();
  // steady.cpp
  struct Above {
    int count = 0;
    bool by_law = true;
    bool busy = false;
  };
  void steady();
  void play(Process& process, std::uint64_t end_ns);
  [[nodiscard]] Above those_above(const Process& process);
  void look_at_share(Process& process, std::uint64_t passed_ns);
  void check_share(const Process& process);
  // slices.cpp
  void count_use();
  [[nodiscard]] bool runs_on_gpu(const Process& process) const;
  void look_at_slices(std::uint64_t passed_ns);
  void look_at_slice(Process& process, std::uint64_t passed_ns);
  void look_at_several(Process& process, std::uint64_t passed_ns);
  void look_at_pair(int holder, int target);
  void check_attached();
  void check_end();

  Options options_;
  bool slow_ = false;  ///< In peace, too, each program has a kernel that takes seconds.
  std::uint64_t turn_ = 0;
  std::uint64_t counted_ns_ = 0;      ///< Until then the use of the GPU is counted.
  std::uint64_t steady_from_ns_ = 0;  ///< 0: it is not the steady time.
  std::uint64_t slices_ns_ = 0;       ///< When slices were last looked at.
  /// Programs outside Sluice, by device, and since when the controller has said so.
  std::array<shm::OutsideWord, 2> outside_{};
  std::array<std::uint64_t, 2> outside_ns_{};
  bool peaceful_ = false;  ///< Nothing happens to anybody any more, and programs come to their end.
  std::string broken_;
  Scope controller_scope_;
  Controller* controller_ = nullptr;
  bool controller_lives_ = false;
  std::shared_ptr<Seen> seen_;
};

extern World* g_world;
/// g_process of a process that has just begun, with the simulated driver.
const std::vector<char>& fresh_globals();

}  // namespace sluice::simulation
