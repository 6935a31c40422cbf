#include "tests/simulation/fibers.hpp"

#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>

#include "intercept/driver/process.hpp"

namespace sluice::simulation {

Fibers* g_fibers = nullptr;
unsigned g_steps_left = 0;

namespace {

constexpr std::size_t kStack = 256 * 1024;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

/// The thread-local variables of this program.
struct Locals {
  char* data = nullptr;
  std::size_t size = 0;
  std::vector<char> fresh;  ///< As a new thread finds them.
};

const Locals& locals() {
  static const Locals found = [] {
    Locals own;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
          auto& filled = *static_cast<Locals*>(to);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
            filled.data = static_cast<char*>(info->dlpi_tls_data);
            filled.size = info->dlpi_phdr[i].p_memsz;
          }
          return 1;  // the program itself is the first
        },
        &own);
    own.fresh.assign(own.data, own.data + own.size);
    return own;
  }();
  return found;
}

/// Each begins with the address of the next one.
constinit char* g_free_stacks = nullptr;

char* take_stack() {
  if (g_free_stacks == nullptr) {
    return static_cast<char*>(mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  char* const stack = g_free_stacks;
  std::memcpy(&g_free_stacks, stack, sizeof(g_free_stacks));
  return stack;
}

void give_stack_back(char* stack) {
  std::memcpy(stack, &g_free_stacks, sizeof(g_free_stacks));
  g_free_stacks = stack;
}

char* globals() { return reinterpret_cast<char*>(&intercept::g_process); }

}  // namespace

void Fibers::prepare() { locals(); }

Fibers::~Fibers() {
  for (const auto& fiber : all) give_stack_back(fiber->stack);
}

Fiber& Fibers::add(Scope& scope, std::function<void()> body) {
  auto made = std::make_unique<Fiber>();
  made->scope = &scope;
  made->body = std::move(body);
  made->thread = ++last_thread_;
  made->stack = take_stack();
  made->locals = locals().fresh;
  return *all.emplace_back(std::move(made));
}

std::size_t Fibers::drop(const Scope& scope, bool watcher_only) {
  return std::erase_if(all, [&](const auto& fiber) {
    if (fiber->scope != &scope || (watcher_only && !fiber->watches)) return false;
    give_stack_back(fiber->stack);
    return true;
  });
}

bool Fibers::has_thread(pid_t thread) const noexcept {
  return std::any_of(all.begin(), all.end(), [&](const auto& fiber) {
    return fiber->thread == thread && fiber->state != Fiber::State::kDone;
  });
}

bool Fibers::can_run(const Fiber& fiber) const noexcept {
  if (fiber.late_until_ns > now_ns || fiber.scope->stopped_until_ns > now_ns) return false;
  switch (fiber.state) {
    case Fiber::State::kReady:
      return true;
    case Fiber::State::kAsleep:
      return fiber.wake_ns <= now_ns;
    case Fiber::State::kLocked:
      return fiber.mutex->__data.__lock == 0;
    default:
      return false;
  }
}

bool Fibers::run_one(unsigned least_steps) {
  Fiber* chosen = nullptr;
  std::uint64_t candidates = 0;
  for (const auto& fiber : all) {
    if (can_run(*fiber) && random.one_in(++candidates)) chosen = fiber.get();
  }
  if (chosen == nullptr) return false;
  resume(*chosen, least_steps << random.below(9));
  return true;
}

std::uint64_t Fibers::next_ns() const noexcept {
  std::uint64_t next = kNever;
  for (const auto& fiber : all) {
    if (fiber->state == Fiber::State::kDone) continue;
    std::uint64_t at = std::max(fiber->late_until_ns, fiber->scope->stopped_until_ns);
    if (fiber->state == Fiber::State::kAsleep) at = std::max(at, fiber->wake_ns);
    if (at > now_ns) next = std::min(next, at);
  }
  return next;
}

bool Fibers::sleep(std::uint64_t until_ns, const void* address) {
  Fiber& self = *current;
  self.state = Fiber::State::kAsleep;
  self.wake_ns = until_ns;
  self.address = address;
  pause();
  const bool woken = self.address == nullptr && address != nullptr;
  self.address = nullptr;
  self.state = Fiber::State::kReady;
  return woken;
}

void Fibers::wake(const void* address) {
  for (const auto& fiber : all) {
    if (fiber->state != Fiber::State::kAsleep || fiber->address != address) continue;
    fiber->address = nullptr;
    fiber->wake_ns = now_ns;
  }
}

void Fibers::lock(pthread_mutex_t* mutex) {
  while (pthread_mutex_trylock(mutex) == EBUSY) {
    current->mutex = mutex;
    current->state = Fiber::State::kLocked;
    pause();
    current->state = Fiber::State::kReady;
  }
}

void end_turn() { g_fibers->pause(); }

void Fibers::begin() {
  Fiber& self = *g_fibers->current;
  self.body();
  self.state = Fiber::State::kDone;
  g_fibers->pause();
}

void Fibers::enter(Scope& scope) {
  if (entered_ == &scope) return;
  if (entered_ != nullptr)
    std::memcpy(entered_->globals.data(), globals(), sizeof(intercept::Process));
  std::memcpy(globals(), scope.globals.data(), sizeof(intercept::Process));
  entered_ = &scope;
}

__attribute__((noinline)) void Fibers::resume(Fiber& fiber, unsigned steps) {
  enter(*fiber.scope);
  std::memcpy(locals().data, fiber.locals.data(), locals().size);
  current = &fiber;
  g_steps_left = steps;
  if (_setjmp(scheduler_) == 0) {
    if (fiber.started) _longjmp(fiber.context, 1);
    fiber.started = true;
    ucontext_t fresh;
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = fiber.stack;
    fresh.uc_stack.ss_size = kStack;
    fresh.uc_link = nullptr;
    makecontext(&fresh, &Fibers::begin, 0);
    setcontext(&fresh);
  }
  Fiber& ran = *current;  // no variable of before the jump is certain
  current = nullptr;
  g_steps_left = 0;
  std::memcpy(ran.locals.data(), locals().data, locals().size);
}

__attribute__((noinline)) void Fibers::pause() {
  if (_setjmp(current->context) == 0) _longjmp(scheduler_, 1);
}

}  // namespace sluice::simulation
