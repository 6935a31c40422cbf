// A stand-in for the interposer's functions of memory orders, to be preloaded or opened globally.
//
// It gives orders at random instants of micro-batches, and checks that the program obeys:
//   SLUICE_FAKE_ORDERS="seed=1 orders=1000 every=3 launches=40 kinds=234"
// gives 1000 orders; a micro-batch gets one with a chance of 1 to 3, at one of its first 40
// launches or at its end; kinds are those of the board. A CPU has no launches: tests call
// sluice_fake_launch() for each, which answers 701 if the launch is refused.
//   SLUICE_FAKE_REPORT=FILE gets a line of counts when the process ends.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "sluice/sluice.h"

namespace {

constexpr int kRefused = 701;

/// The number after `name=` in the plan.
std::uint64_t number(const std::string& plan, const std::string& name, std::uint64_t otherwise) {
  const auto at = plan.find(name + "=");
  return at == std::string::npos ? otherwise : std::stoull(plan.substr(at + name.size() + 1));
}

struct Fake {
  std::mutex mutex;
  std::mt19937_64 random;
  std::uint64_t orders_left = 0;
  std::uint64_t every = 1;
  std::uint64_t launches = 1;
  std::string kinds = "2";

  std::uint64_t grant = SLUICE_NO_LIMIT;
  std::uint64_t held = 0;
  std::uint64_t lacked = 0;  ///< Refused allocations.
  std::uint64_t base = 0;
  std::uint64_t slope = 0;
  std::uint64_t epoch = 0;
  std::uint64_t pending = 0;
  bool critical = false;
  bool refusing = false;
  bool sleeping = false;
  bool changed = false;
  std::int64_t countdown = -1;  ///< Launches until the order; negative: none in this micro-batch.

  std::uint64_t given = 0;
  std::uint64_t refused = 0;   ///< Launches.
  std::uint64_t waits = 0;     ///< Calls of wait_resume.
  std::uint64_t mistakes = 0;  ///< Of the program: launches in its sleep, wrong or missing ends.

  Fake() {
    const char* text = std::getenv("SLUICE_FAKE_ORDERS");
    if (text == nullptr) return;
    const std::string plan = text;
    random.seed(number(plan, "seed", 1));
    orders_left = number(plan, "orders", 0);
    every = number(plan, "every", 1);
    launches = number(plan, "launches", 1);
    kinds = std::to_string(number(plan, "kinds", SLUICE_ORDER_DROP));
  }

  ~Fake() {
    const char* file = std::getenv("SLUICE_FAKE_REPORT");
    std::FILE* out = file != nullptr ? std::fopen(file, "w") : nullptr;
    if (out == nullptr) return;
    std::fprintf(out,
                 "given %ju refused %ju waits %ju mistakes %ju pending %ju base %ju slope %ju\n",
                 given, refused, waits, mistakes, pending, base, slope);
    std::fclose(out);
  }

  void give(unsigned kind) {
    pending = ++epoch << 8 | kind;
    sleeping = kind >= SLUICE_ORDER_SLEEP;
    changed = true;
    ++given;
  }

  void give_planned() {
    countdown = -1;
    --orders_left;
    give(static_cast<unsigned>(kinds[random() % kinds.size()] - '0'));
  }

  void set_critical(bool on) {
    if (critical && !on) {
      if (sleeping) ++mistakes;
      if (orders_left > 0 && random() % every == 0) {
        countdown = static_cast<std::int64_t>(random() % launches);
      }
    }
    // A micro-batch with fewer launches, or one whose refused launches a library hides.
    if (on && !critical && countdown >= 0) give_planned();
    if (!refusing) critical = on;
  }

  int launch() {
    if (sleeping && pending == 0) ++mistakes;
    if (countdown == 0 && !critical) give_planned();
    if (countdown > 0 && !critical) --countdown;
    if ((pending & 0xff) >= SLUICE_ORDER_DROP && !critical) refusing = true;
    if (!refusing) return 0;
    ++refused;
    return kRefused;
  }

  /// While launches are refused there is something to obey, also without a server.
  std::uint64_t order() const {
    return refusing && (pending & 0xff) < SLUICE_ORDER_DROP ? epoch << 8 | SLUICE_ORDER_DROP
                                                            : pending;
  }

  void done(std::uint64_t obeyed) {
    if (obeyed != order() || obeyed == 0) ++mistakes;
    pending = 0;
    refusing = false;
  }
};

Fake& fake() {
  static Fake one;
  return one;
}

template <class Body>
auto locked(Body body) {
  Fake& one = fake();
  const std::lock_guard lock(one.mutex);
  return body(one);
}

// The report is written even by a process that asks for nothing.
[[gnu::constructor]] void begin() { fake(); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

std::uint64_t sluice_v1_memory_grant() {
  return locked([](Fake& one) { return one.grant; });
}
std::uint64_t sluice_v1_memory_held() {
  return locked([](Fake& one) { return one.held; });
}
std::uint64_t sluice_v1_memory_refused() {
  return locked([](Fake& one) { return one.lacked; });
}
void sluice_v1_memory_fit(std::uint64_t base, std::uint64_t slope) {
  locked([&](Fake& one) { one.base = base, one.slope = slope; });
}
std::uint64_t sluice_v1_order() {
  return locked([](Fake& one) { return one.order(); });
}
void sluice_v1_order_done(std::uint64_t order) {
  locked([&](Fake& one) { one.done(order); });
}
void sluice_v1_critical(int begin) {
  locked([&](Fake& one) { one.set_critical(begin != 0); });
}

/// A planned sleep ends with its third wait. Otherwise waits for a change, as the interposer does.
int sluice_v1_wait_resume(std::uint32_t timeout_ms) {
  const bool over = locked([](Fake& one) {
    ++one.waits;
    if (one.sleeping && one.waits % 3 == 0) one.sleeping = false, one.changed = true;
    const bool now = one.changed && !one.sleeping;
    if (now) one.changed = false;
    return now;
  });
  if (over) return 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms < 2 ? timeout_ms : 2));
  return 0;
}

/// For tests.
int sluice_fake_launch() {
  return locked([](Fake& one) { return one.launch(); });
}
void sluice_fake_give(unsigned kind) {
  locked([&](Fake& one) { one.give(kind); });
}
void sluice_fake_grant(std::uint64_t bytes) {
  locked([&](Fake& one) { one.grant = bytes, one.changed = true; });
}
void sluice_fake_held(std::uint64_t bytes) {
  locked([&](Fake& one) { one.held = bytes; });
}
void sluice_fake_refuse_memory() {
  locked([](Fake& one) { ++one.lacked; });
}
/// The server died: its order is void.
void sluice_fake_void_order() {
  locked([](Fake& one) { one.pending = 0, one.sleeping = false; });
}
/// Begins a plan of random orders; returns to an idle board first.
void sluice_fake_plan(std::uint64_t seed, std::uint64_t orders, std::uint64_t every,
                      std::uint64_t launches, const char* kinds) {
  locked([&](Fake& one) {
    one.random.seed(seed);
    one.orders_left = orders, one.every = every, one.launches = launches, one.kinds = kinds;
    one.pending = 0, one.refusing = false, one.sleeping = false, one.critical = false;
    one.grant = SLUICE_NO_LIMIT, one.held = 0, one.base = 0, one.slope = 0, one.countdown = -1;
    one.given = 0, one.refused = 0, one.waits = 0, one.mistakes = 0, one.changed = false;
  });
}
/// given, refused, waits, mistakes, base, slope, pending.
std::uint64_t sluice_fake_count(int which) {
  return locked([&](Fake& one) {
    const std::uint64_t counts[]{one.given, one.refused, one.waits,  one.mistakes,
                                 one.base,  one.slope,   one.order()};
    return counts[which];
  });
}
}
#pragma GCC visibility pop
