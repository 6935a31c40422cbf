#include "tests/simulation/world.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "controller/admission.hpp"
#include "controller/registry.hpp"
#include "controller/repair.hpp"
#include "shm/board_format.hpp"

namespace sluice::simulation {

World* g_world = nullptr;

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::size_t kMostProcesses = 5;

/// A user who may ask for priority 0 only gets the board for reading.
class Users : public controller::OwnUser {
 public:
  controller::Terms terms(const controller::Peer& peer) override {
    const Process* const process = g_world->with_pid(peer.process->pid());
    controller::Terms terms;
    if (process != nullptr && process->reader) terms.max_priority = 0;
    if (process != nullptr && process->long_slices) terms.max_slice = shm::kMostSliceUs;
    return terms;
  }
};

}  // namespace

struct World::Controller {
  Controller(shm::Board& board)
      : clients(board, tally), registry("simulated", clients, leases, commands, users) {}
  controller::Tally tally;
  controller::Clients clients;
  controller::Leases leases;
  controller::CommandReader commands;
  Users users;
  controller::Registry registry;
};

World::World(std::uint64_t seed, const Options& options)
    : fibers(seed), board(*new shm::Board{}), options_(options) {
  g_world = this;
  g_fibers = &fibers;
  shm::initialise(board);
  board.board_id.store(1);
  board.max_hold_ns.store(kMaxHoldNs);
  controller_scope_.globals = fresh_globals();
  prepare_to_look();
}

World::~World() {
  for (shm::Slot& slot : board.slots) {
    if (slot.alive.held()) slot.alive.release();
  }
  g_fibers = nullptr;
  g_world = nullptr;
}

void World::say(const std::string& what) const {
  if (!options_.trace) return;
  std::printf("%8lu %12.3f ms  %s\n", static_cast<unsigned long>(turn_),
              static_cast<double>(fibers.now_ns % 1'000'000'000'000) / 1e6, what.c_str());
}

void World::broken(std::string what) {
  if (!broken_.empty()) return;
  broken_ = "turn " + std::to_string(turn_) + ": " + std::move(what);
  say(broken_);
}

// --- The system ---------------------------------------------------------------------------------

/// Whoever opens a gate may die before it wakes those who wait there.
bool World::loses_wake(const void* word) {
  const auto* const at = static_cast<const char*>(word);
  const auto* const begin = reinterpret_cast<const char*>(&board);
  return !peaceful_ && at >= begin && at < begin + sizeof(board) && fibers.random.one_in(4);
}

bool World::is_connection(int file) const {
  return file >= Link::kFirst && file < Link::kFirst + static_cast<int>(links.size());
}
bool World::has_hung_up(int file) const {
  return is_connection(file) &&
         links[static_cast<std::size_t>(file - Link::kFirst)]->controller_closed;
}
bool World::has_reply(int file) const {
  return is_connection(file) && links[static_cast<std::size_t>(file - Link::kFirst)]->reply;
}

int World::hang_up(int file) {
  link(file).client_closed = true;
  fibers.wake(this);
  return 0;
}

int World::connect() {
  step();
  if (!controller_lives_) return -ECONNREFUSED;
  auto made = std::make_unique<Link>();
  made->client = &running();
  made->at_controller.peer.process = std::make_shared<const controller::ClientProcess>(
      controller::ClientProcess::with_pid(running().pid));
  links.push_back(std::move(made));
  return Link::kFirst + static_cast<int>(links.size()) - 1;
}

// --- The controller -----------------------------------------------------------------------------

void World::start_controller() {
  say("the controller starts");
  controller_lives_ = true;
  controller_scope_.ran_since_ns = fibers.now_ns;
  fibers.add(controller_scope_, [this] { control(); });
}

void World::kill_controller() {
  say("the controller dies");
  controller_lives_ = false;
  fibers.drop(controller_scope_);
  controller_scope_.stopped_until_ns = 0;
  for (const auto& link : links) {
    link->controller_closed = true;
    fibers.wake(link.get());
  }
}

void World::control() {
  controller_ = new Controller(board);
  controller::adopt(controller_->clients, controller_->users, base::monotonic_ns());
  std::uint64_t beat_ns = fibers.now_ns;
  for (;;) {
    for (std::size_t i = 0; i < links.size(); ++i) {
      Link& link = *links[i];
      if (link.controller_closed) continue;
      controller::Connection& connection = link.at_controller;
      if (!link.requests.empty()) {
        const shm::Request request = link.requests.front();
        link.requests.pop_front();
        link.reply = controller_->registry.answer(connection, request);
        say("the controller answers process " + std::to_string(link.client->pid) + ": slot " +
            std::to_string(link.reply->slot) + ", " + link.reply->text.data());
        fibers.wake(&link);
      } else if (!link.reports.empty()) {
        const shm::Report report = link.reports.front();
        link.reports.pop_front();
        controller_->registry.report(connection, report);
      } else if (link.client_closed) {
        controller_->registry.hung_up(connection);
        link.controller_closed = true;
      }
    }
    if (const std::uint64_t now = base::monotonic_ns(); now >= beat_ns) {
      beat_ns = now + shm::kHeartbeatPeriodNs;
      board.heartbeat_ns.store(now);
      controller::repair(controller_->clients, now);
      look_outside(now);
    }
    const auto waits = [](const auto& link) {
      const bool sent = !link->requests.empty() || !link->reports.empty() || link->client_closed;
      return !link->controller_closed && sent;
    };
    if (std::none_of(links.begin(), links.end(), waits)) fibers.sleep(beat_ns, this);
  }
}

/// As the thread of the controller does that asks NVML.
void World::look_outside(std::uint64_t now) {
  for (std::size_t device = 0; device < outside_.size(); ++device) {
    const std::uint32_t word = outside_[device].pack();
    if (board.devices[device].outside.exchange(word) != word) outside_ns_[device] = now;
  }
}

// --- Processes ----------------------------------------------------------------------------------

/// The kernel lets go of its watcher's mutexes. Other threads run on for a moment.
void World::kill(Process& process) {
  if (process.killed) return;
  process.killed = true;
  process.killed_ns = fibers.now_ns;
  process.stopped_until_ns = 0;
  const auto pid = static_cast<std::uint32_t>(process.pid);
  for (shm::Slot& slot : board.slots) {
    if (slot.pid.load() == pid && slot.alive.held()) slot.alive.release();
  }
  const bool watched = fibers.drop(process, true) != 0;
  process.gone_turn = watched ? turn_ + fibers.random.below(2) * fibers.random.below(200) : 0;
}

void World::bury(Process& process) {
  say("process " + std::to_string(process.pid) + " is gone");
  process.gone = true;
  fibers.drop(process);
  for (GpuStream& stream : process.streams) stream.items.clear();
  for (const auto& link : links) {
    if (link->client == &process) link->client_closed = true;
  }
  fibers.wake(this);
}

// --- What happens -------------------------------------------------------------------------------

void World::nature() {
  Random& draws = fibers.random;
  if (!controller_lives_ && draws.one_in(300)) start_controller();
  if (!draws.one_in(100)) return;
  std::vector<Process*> living;
  for (const auto& process : processes) {
    if (!process->killed) living.push_back(process.get());
  }
  if (living.empty() || (living.size() < kMostProcesses && draws.one_in(4))) return start_process();
  Process& victim = *living[draws.below(living.size())];
  const std::string name = "process " + std::to_string(victim.pid);
  const std::uint64_t now = fibers.now_ns;
  switch (draws.below(13)) {
    case 0:
      say(name + " is killed");
      return kill(victim);
    case 1:
      if (victim.at_exit == nullptr) return;
      say(name + " exits");
      victim.changed = true;  // from now on it obeys nobody
      fibers.add(victim, [this, &victim] {
        victim.at_exit();
        victim.exited = true;
      });
      return;
    case 2:
    case 3:
      victim.stopped_at_ns = now;
      victim.stopped_until_ns = now + draws.below(draws.one_in(3) ? 3'000 * kMs : 300 * kMs);
      return say(name + " stops until " +
                 std::to_string(victim.stopped_until_ns / 1000 % 1'000'000'000));
    case 4:
      if (controller_lives_) kill_controller();
      return;
    case 5:
      controller_scope_.stopped_until_ns = now + draws.below(500 * kMs);
      return say("the controller stops");
    case 6: {
      const bool lower = draws.one_in(2);
      say(name + (lower ? " gets another priority" : " gets another policy"));
      fibers.add(victim, [this, &victim, lower] { change(victim, lower); });
      return;
    }
    case 7: {
      const auto some = [&draws](std::uint64_t least) {
        return static_cast<std::uint16_t>(draws.one_in(least) ? 1 : 0);
      };
      outside_[draws.one_in(8) ? 1 : 0] = {some(3), some(3)};
      return say("programs outside come or go");
    }
    default: {
      Fiber& late = *fibers.all[draws.below(fibers.all.size())];
      late.late_until_ns = now + draws.below(60 * kMs);
      return say("thread " + std::to_string(late.thread) + " is late");
    }
  }
}

bool World::turn() {
  ++turn_;
  if (!peaceful_) nature();
  for (const auto& process : processes) {
    if (process->exited) kill(*process);
    const bool ends = process->exited || (process->killed && process->gone_turn <= turn_);
    if (ends && !process->gone) bury(*process);
  }
  fibers.now_ns += fibers.random.below(2000);
  const bool ran = fibers.run_one(peaceful_ ? 8 : 1);
  std::uint64_t next = ran ? fibers.now_ns : fibers.next_ns();
  const auto for_each_stream = [this](auto visit) {
    for (const auto& process : processes) {
      if (process->gone) continue;
      for (GpuStream& stream : process->streams) visit(stream);
    }
  };
  for_each_stream([&](const GpuStream& stream) { next = std::min(next, stream.next_ns()); });
  if (next == kNever) return false;
  fibers.now_ns = std::max(fibers.now_ns, next);
  count_use();
  for_each_stream([&](GpuStream& stream) {
    if (stream.advance(fibers.now_ns)) fibers.wake(&stream);
  });
  look();
  return true;
}

void World::pass(std::uint64_t ns) {
  const std::uint64_t end = fibers.now_ns + ns;
  while (broken_.empty() && fibers.now_ns < end && turn()) continue;
}

void World::await_programs() {
  const auto is_busy = [](const auto& process) {
    return !process->gone && process->busy_threads != 0;
  };
  const auto any = [&] { return std::any_of(processes.begin(), processes.end(), is_busy); };
  const std::uint64_t end_ns = fibers.now_ns + 300'000 * kMs;
  while (broken_.empty() && fibers.now_ns < end_ns && any()) pass(20 * kMs);
  if (any()) broken("a program does not come to its end");
}

std::string World::run() {
  slow_ = fibers.random.one_in(32);
  const bool is_steady = !slow_ && (options_.steady || fibers.random.one_in(16));
  start_controller();
  for (int i = 0; i < 3; ++i) start_process();
  for (std::uint64_t i = 0; i < options_.steps && broken_.empty() && turn(); ++i) continue;
  say("peace");
  peaceful_ = true;
  if (!controller_lives_) start_controller();
  controller_scope_.stopped_until_ns = 0;
  for (const auto& process : processes) {
    process->stopped_until_ns = 0;
    process->gone_turn = 0;  // of the killed
  }
  for (const auto& fiber : fibers.all) fiber->late_until_ns = 0;
  await_programs();
  if (broken_.empty()) check_attached();
  if (broken_.empty() && is_steady) steady();
  // Whatever has happened to them before, now they obey.
  for (const auto& process : processes) {
    if (process->gone) continue;
    ++process->busy_threads;
    fibers.add(*process, [this, at = process.get()] { last_act(*at); });
  }
  await_programs();
  pass(300 * kMs);
  if (broken_.empty()) check_end();
  return broken_;
}

}  // namespace sluice::simulation
