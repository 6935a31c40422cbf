// What the interposer asks of the system, for the simulated processes. The program's own functions
// come before those of libc. Outside the fibers they do what libc does, as far as this program
// needs it.
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string_view>

#include "base/futex.hpp"
#include "tests/simulation/world.hpp"

using sluice::simulation::g_fibers;
using sluice::simulation::g_world;

namespace {

bool inside() { return g_fibers != nullptr && g_fibers->current != nullptr; }

/// No thread wakes on time: up to a tenth later, and up to 0.2 ms.
std::uint64_t end_of_sleep(std::uint64_t ns) {
  return g_fibers->now_ns + ns + g_fibers->random.below(ns / 10 + 200'000);
}

/// Memory of one seed, all given back at its end: a killed process frees nothing.
struct Arena {
  static constexpr std::size_t kSize = std::size_t{1} << 30U;
  char* memory = nullptr;
  std::size_t used = 0;
  bool on = false;
};
constinit Arena g_arena;

bool is_of_seed(const void* at) {
  return at >= g_arena.memory && at < g_arena.memory + Arena::kSize;
}

}  // namespace

namespace sluice::simulation {

/// At the same address in each run, so that a seed makes the same steps.
SeedMemory::SeedMemory() {
  if (g_arena.memory == nullptr) {
    void* const wanted = reinterpret_cast<void*>(0x2000'0000'0000);
    g_arena.memory = static_cast<char*>(
        mmap(wanted, Arena::kSize, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0));
    if (g_arena.memory != wanted) std::abort();
  }
  g_arena.used = 0;
  g_arena.on = true;
}
SeedMemory::~SeedMemory() { g_arena.on = false; }

}  // namespace sluice::simulation

void* operator new(std::size_t size, std::align_val_t align) {
  const auto mask = static_cast<std::size_t>(align) - 1;
  if (!g_arena.on) return std::aligned_alloc(mask + 1, (size + mask) & ~mask);
  const std::size_t at = (g_arena.used + mask) & ~mask;
  if (at + size > Arena::kSize) std::abort();
  g_arena.used = at + size;
  return g_arena.memory + at;
}
void* operator new(std::size_t size) { return operator new (size, std::align_val_t{16}); }
void operator delete(void* at) noexcept {
  if (!is_of_seed(at)) std::free(at);
}
void operator delete(void* at, std::size_t) noexcept { operator delete(at); }
void operator delete(void* at, std::align_val_t) noexcept { operator delete(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { operator delete(at); }

namespace sluice::base {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::uint64_t timeout_ns) noexcept {
  sluice::simulation::step();
  if (*reinterpret_cast<const volatile std::uint32_t*>(&word) != expected) return;
  g_fibers->sleep(end_of_sleep(timeout_ns), &word);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  sluice::simulation::step();
  if (g_fibers != nullptr && !g_world->loses_wake(&word)) g_fibers->wake(&word);
}

}  // namespace sluice::base

extern "C" {

int clock_gettime(clockid_t id, timespec* now) noexcept {
  if (g_fibers == nullptr) return static_cast<int>(syscall(SYS_clock_gettime, id, now));
  sluice::simulation::step();
  const std::uint64_t ns = g_fibers->now_ns += 100;
  *now = {static_cast<time_t>(ns / 1'000'000'000U), static_cast<long>(ns % 1'000'000'000U)};
  return 0;
}

/// A busy machine: whoever naps often sleeps long.
int nanosleep(const timespec* nap, timespec*) {
  const auto ns = static_cast<std::uint64_t>(nap->tv_sec) * 1'000'000'000U +
                  static_cast<std::uint64_t>(nap->tv_nsec);
  g_fibers->sleep(end_of_sleep(ns + g_fibers->random.below(1'000'000)));
  return 0;
}

int sched_yield() noexcept {
  if (inside()) sluice::simulation::end_turn();
  return 0;
}

int poll(pollfd* files, nfds_t count, int timeout_ms) {
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    files[i].revents = 0;
    if (g_world->has_hung_up(files[i].fd)) files[i].revents = POLLHUP | POLLRDHUP;
    if (g_world->has_reply(files[i].fd)) files[i].revents |= POLLIN & files[i].events;
    ready += files[i].revents != 0 ? 1 : 0;
  }
  if (ready == 0 && timeout_ms > 0) {
    g_fibers->sleep(end_of_sleep(static_cast<std::uint64_t>(timeout_ms) * 1'000'000U));
  }
  return ready;
}

int fstat(int file, struct stat* about) noexcept {
  about->st_mode = S_IFSOCK;
  about->st_ino = static_cast<ino_t>(file);
  return inside() && g_world->is_connection(file) ? 0 : -1;
}

int close(int file) {
  if (g_fibers != nullptr && g_world->is_connection(file)) return g_world->hang_up(file);
  return static_cast<int>(syscall(SYS_close, file));
}

int pthread_create(pthread_t* thread, const pthread_attr_t*, void* (*body)(void*), void* with) {
  auto& fiber = g_fibers->add(*g_fibers->current->scope, [body, with] { body(with); });
  *thread = reinterpret_cast<pthread_t>(&fiber);
  return 0;
}
int pthread_detach(pthread_t) { return 0; }
int pthread_setname_np(pthread_t thread, const char* name) {
  reinterpret_cast<sluice::simulation::Fiber*>(thread)->watches =
      std::string_view(name) == "sluice-watch";
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (!inside()) return pthread_mutex_trylock(mutex);
  sluice::simulation::step();
  g_fibers->lock(mutex);
  return 0;
}

pid_t gettid() noexcept { return g_fibers->current->thread; }
int tgkill(pid_t, pid_t thread, int) noexcept {
  errno = ESRCH;
  return g_fibers->has_thread(thread) ? 0 : -1;
}

/// Of a simulated process: what it does when it exits.
int atexit(void (*handler)()) {
  if (inside()) g_world->running().at_exit = handler;
  return 0;
}
int pthread_atfork(void (*)(), void (*)(), void (*)()) { return 0; }
}
