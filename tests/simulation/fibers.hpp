#pragma once
#include <pthread.h>
#include <setjmp.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

/// The threads of all simulated processes are fibers of one real thread, and time is a number. A
/// fiber runs until it sleeps, waits for a mutex, or has made the steps that it was given. A step
/// is an atomic access, a lock or a look at the clock.
namespace sluice::simulation {

/// Every draw of a seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed * 0x9e37'79b9'7f4a'7c15U + 1) {}
  std::uint64_t next() noexcept {  // splitmix64
    std::uint64_t z = (state_ += 0x9e37'79b9'7f4a'7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11ebU;
    return z ^ (z >> 31U);
  }
  /// From 0 to `end` - 1.
  std::uint64_t below(std::uint64_t end) noexcept { return next() % end; }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

/// A simulated process: what is global in a real one, while another one runs.
struct Scope {
  std::vector<char> globals;  ///< g_process.
  std::uint64_t stopped_until_ns = 0;
  std::uint64_t ran_since_ns = 0;  ///< Since then no thread of it was stopped or late.
};

struct Fiber {
  enum class State : std::uint8_t { kReady, kAsleep, kLocked, kDone };
  Scope* scope = nullptr;
  std::function<void()> body;
  pid_t thread = 0;
  State state = State::kReady;
  std::uint64_t wake_ns = 0;         ///< If asleep.
  const void* address = nullptr;     ///< A wake of this address ends the sleep.
  pthread_mutex_t* mutex = nullptr;  ///< If locked out.
  std::uint64_t late_until_ns = 0;   ///< It has no processor until then.
  bool watches = false;              ///< It is the thread of the watcher.
  bool started = false;
  std::uint64_t launch_turn = 0;  ///< When its last launch began.
  std::uint64_t blocked_ns = 0;   ///< For so long the driver has blocked that launch.
  /// Since when it has been in a synchronising call; 0: it is in none.
  std::uint64_t waits_since_ns = 0;
  bool is_client = false;       ///< Its process was a client when its last launch began.
  unsigned launched = 0;        ///< The streams that it launched into as a client, a bit each.
  bool attached = false;        ///< Its process was a client when that call began.
  std::vector<void*> contexts;  ///< Those that it has made current; the last one is.
  char* stack = nullptr;
  jmp_buf context;
  std::vector<char> locals;  ///< Its thread-local variables, while another fiber runs.
};

class Fibers {
 public:
  /// Before the first seed.
  static void prepare();
  explicit Fibers(std::uint64_t seed) : random(seed) {}
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  Fiber& add(Scope& scope, std::function<void()> body);
  /// The threads of the process are no more, wherever they are.
  /// Returns how many there were.
  std::size_t drop(const Scope& scope, bool watcher_only = false);
  [[nodiscard]] bool has_thread(pid_t thread) const noexcept;

  /// Lets a fiber that can run make at least so many steps. False if none can run now.
  bool run_one(unsigned least_steps);
  /// When a sleep, a delay or a stop ends next.
  [[nodiscard]] std::uint64_t next_ns() const noexcept;

  /// From now on g_process is that of this process.
  void enter(Scope& scope);

  // For the running fiber.
  /// Until then, or until a wake of the address. False: nobody has woken it.
  bool sleep(std::uint64_t until_ns, const void* address = nullptr);
  void lock(pthread_mutex_t* mutex);
  void wake(const void* address);

  Random random;
  std::uint64_t now_ns = 1'000'000'000'000;
  std::vector<std::unique_ptr<Fiber>> all;
  Fiber* current = nullptr;  ///< Null in the scheduler itself.

 private:
  [[nodiscard]] bool can_run(const Fiber& fiber) const noexcept;
  void resume(Fiber& fiber, unsigned steps);
  void pause();
  friend void end_turn();
  static void begin();

  jmp_buf scheduler_;
  Scope* entered_ = nullptr;
  pid_t last_thread_ = 1000;
};

/// Those of the seed that runs; null outside.
extern Fibers* g_fibers;
/// The steps that the running fiber still has; 0 in the scheduler.
extern unsigned g_steps_left;
void end_turn();
inline void step() noexcept {
  if (g_steps_left != 0 && --g_steps_left == 0) end_turn();
}

}  // namespace sluice::simulation
