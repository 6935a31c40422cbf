// Stand-ins for what leads out of a process: the socket of the controller, the mapping of the
// board, and what the kernel tells of processes.
#include <cerrno>

#include "controller/command_reader.hpp"
#include "controller/process.hpp"
#include "intercept/driver/dlsym.hpp"
#include "intercept/driver/loaded.hpp"
#include "shm/mapping.hpp"
#include "shm/messages.hpp"
#include "shm/no_controller.hpp"
#include "tests/simulation/world.hpp"

using sluice::simulation::g_fibers;
using sluice::simulation::g_world;

namespace sluice::shm {

int connect_controller(const char*) noexcept { return g_world->connect(); }
int connect_patiently(const char*, int) noexcept { return g_world->connect(); }

namespace {

template <class Message, class Queue>
int send(int file, const Message& message, Queue queue) {
  if (g_world->has_hung_up(file)) return -EPIPE;
  simulation::step();
  (g_world->link(file).*queue).push_back(message);
  g_fibers->wake(g_world);
  return 0;
}

}  // namespace

int tell(int file, const Request& request) noexcept {
  return send(file, request, &simulation::Link::requests);
}
int tell(int file, const Report& report) noexcept {
  return send(file, report, &simulation::Link::reports);
}
int receive(int file, Reply& reply) noexcept {
  auto& link = g_world->link(file);
  if (!link.reply) return link.controller_closed ? -ECONNRESET : -EAGAIN;
  reply = *link.reply;
  link.reply.reset();
  return 0;
}
int ask(int file, const Request& request, Reply& reply, int timeout_ms) noexcept {
  if (const int failed = tell(file, request); failed != 0) return failed;
  const std::uint64_t end = g_fibers->now_ns + static_cast<std::uint64_t>(timeout_ms) * 1'000'000U;
  for (;;) {
    const int result = receive(file, reply);
    if (result != -EAGAIN) return result;
    if (g_fibers->now_ns >= end) return -ETIMEDOUT;
    g_fibers->sleep(end, &g_world->link(file));
  }
}

std::string why_no_controller(int, std::string_view) { return {}; }

struct BoardMapping::Mapped {};
BoardMapping::BoardMapping() noexcept = default;
BoardMapping::BoardMapping(BoardMapping&&) noexcept = default;
BoardMapping& BoardMapping::operator=(BoardMapping&&) noexcept = default;
BoardMapping::~BoardMapping() = default;
BoardMapping BoardMapping::attach(std::string_view, Rights) { return {}; }
Board& BoardMapping::board() const noexcept { return g_world->board; }
bool BoardMapping::writable() const noexcept { return !g_world->running().reader; }
void* BoardMapping::another_view() const noexcept { return &g_world->board; }
bool BoardMapping::remove_if_unused(const std::string&) noexcept { return false; }
void BoardMapping::abandon_in_child() noexcept {}

}  // namespace sluice::shm

namespace sluice::controller {

ClientProcess ClientProcess::with_pid(pid_t pid) noexcept {
  ClientProcess found;
  found.pid_ = pid;
  found.pidfd_ = base::Fd(simulation::Link::kFirst - 1);
  return found;
}
ClientProcess ClientProcess::peer_of(int, pid_t pid) noexcept { return with_pid(pid); }
bool ClientProcess::ended() const noexcept {
  const simulation::Process* const found = g_world->with_pid(pid_);
  return found == nullptr || found->gone;
}
std::optional<std::uint64_t> started_ns(pid_t) { return 0; }
bool has_our_clock(pid_t) { return true; }
std::optional<uid_t> user_of(pid_t) { return 0; }

CommandReader::CommandReader() = default;
CommandReader::~CommandReader() = default;
void CommandReader::ask(int, std::uint32_t, pid_t) {}
void CommandReader::deliver(Clients&) {}

}  // namespace sluice::controller

namespace sluice::intercept {

bool LoadedLibraries::look() noexcept { return false; }
void LoadedLibraries::before_fork() noexcept {}
void LoadedLibraries::after_fork() noexcept {}
void* real_dlsym(void*, const char*) noexcept { return nullptr; }
bool is_real_dlsym(const void*) noexcept { return false; }

}  // namespace sluice::intercept
