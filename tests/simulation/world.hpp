#pragma once
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/server.hpp"
#include "shm/view.hpp"
#include "tests/simulation/fibers.hpp"
#include "tests/simulation/gpu.hpp"

namespace sluice::simulation {

inline constexpr pid_t kFirstPid = 101;
inline constexpr std::uint64_t kMaxHoldNs = 1'000'000'000;

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
  void look_at_pair(int holder, int target);
  void check_attached();
  void check_end();

  Options options_;
  bool slow_ = false;  ///< In peace, too, each program has a kernel that takes seconds.
  std::uint64_t turn_ = 0;
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
