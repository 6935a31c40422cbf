// One loop of launches in processes that interrupt it, close its files, share a processor, or
// change what is preloaded.
#include <dlfcn.h>
#include <sched.h>
#include <sys/time.h>

#include "driver.hpp"

static void nothing() {}
/// Launches into one stream, and a wait after each `every`; then `after`.
static int launches(int count, int every, bool warm, void (*after)() = nothing) {
  Kernel mix;
  CUstream s = make_stream();
  const CUdeviceptr data = make_data();
  if (warm) mix(s, data, 1), finish_all();
  const auto end = [&] { finish(s), after(); };
  const Run run = timed(count, end, [&](int i) {
    mix(s, data, i);
    if (i % every == every - 1) finish(s);
  });
  return report(sum_of(data), run);
}

/// Driver API, one stream, back to back.
CASE(tiny_driver) {
  Primary gpu;
  return launches(count_of(args, 300000), 1000, true);
}

static void set_timers(int us) {
  const itimerval every{{0, us}, {0, us}};
  setitimer(ITIMER_REAL, &every, nullptr);
  setitimer(ITIMER_PROF, &every, nullptr);
}

/// Timers interrupt every call a thousand times a second.
CASE(alarms) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);  // without SA_RESTART: calls return EINTR
  sigaction(SIGPROF, &action, nullptr);
  Primary gpu;
  set_timers(1000);
  return launches(count_of(args, 240000), 20, false, [] { set_timers(0); });
}

/// All threads share one processor: those of the program and those of Sluice.
CASE(onecpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);
  Primary gpu;
  return launches(count_of(args, 240000), 10, false);
}

/// Starts without any environment: the preload is gone.
CASE(cleanenv) {
  const Run run = timed(2, [](int) {
    expect_success(spawn_self({"tiny_driver", "20000"}, {}, true));
  });
  return report(1, run);
}

/// A preloaded library of the program's own counts launches and allocations (libshim.so; run.py
/// preloads it).
CASE(shim) {
  const int done = case_tiny_driver(args);
  const auto count =
      reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "hostile_shim_launches"));
  if (count == nullptr) die("libshim.so is not preloaded");
  std::fprintf(stderr, "shim saw %lu launches\n", count());
  if (count() == 0) die("the other preloaded library saw no launch");
  return done;
}

/// One step is a kernel and a wait: for the whole context, in a copy, or for the stream.
CASE(syncloop) {
  Primary gpu;
  Kernel mix;
  const CUdeviceptr data = make_data();
  unsigned word = 0;
  finish_all();
  const Run run = timed(count_of(args, 90000), [&](int i) {
    mix(nullptr, data, i);
    if (i % 3 == 0) finish_all();
    if (i % 3 == 1) CU(cuMemcpyDtoH(&word, data, 4));
    if (i % 3 == 2) finish(nullptr);
  });
  return report(sum_of(data), run);
}

/// The program closes what it has not opened itself: sockets and shared memory.
CASE(closefds) {
  const auto [gpu, mix, s, data] = Work();
  int closed = 0;
  const auto end = [&] { finish(s); };
  const Run run = timed(8, end, [&](int) {
    for (unsigned i = 0; i < 5000; ++i) {
      mix(s, data, i);
      if (i % 100 == 99) finish(s);
    }
    for (int fd = 3; fd < 256; ++fd) {
      char target[256] = {};
      const std::string path = "/proc/self/fd/" + std::to_string(fd);
      if (readlink(path.c_str(), target, sizeof target - 1) <= 0) continue;
      const std::string to = target;
      const bool ours = to.find("sluice") != std::string::npos || to.rfind("socket:", 0) == 0;
      if (!ours || to.find("simgpu") != std::string::npos || getenv("SLUICE_HOSTILE_SIM")) continue;
      close(fd);
      ++closed;
      // The number becomes a file of the program's own.
      if (open("/dev/null", O_RDONLY) < 0) die("open");
    }
    sleep_ms(60);
  });
  return report(sum_of(data), {8 * 5000, run.seconds}, "closed=" + std::to_string(closed));
}
