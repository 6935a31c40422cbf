#include "simgpu/driver/host_call.hpp"

#include <signal.h>

#include <thread>

#include "base/futex.hpp"

namespace sluice::simgpu {

Work host_work(CUhostFn function, void* argument) {
  Work work;
  work.op = Op::kHostCall;
  work.a = reinterpret_cast<std::uint64_t>(function);
  work.b = reinterpret_cast<std::uint64_t>(argument);
  return work;
}

void HostCalls::start() {
  std::call_once(started_, [this] {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the application's threads
    std::thread([this] { serve(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  });
}

bool HostCalls::run_due() {
  bool ran = false;
  Area& area = connection_.area();
  const std::uint32_t used = area.channels.load();
  for (std::uint32_t i = 0; i < used; ++i) {
    Channel& channel = area.ring.at(i);
    const std::uint64_t due = channel.host_due.load();
    if (due == channel.host_done.load()) continue;
    const auto function = reinterpret_cast<CUhostFn>(channel.host_function.load());
    function(reinterpret_cast<void*>(channel.host_argument.load()));
    channel.host_done = due;
    connection_.ring();
    ran = true;
  }
  return ran;
}

void HostCalls::serve() {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  for (;;) {
    std::atomic<std::uint32_t>& calls = connection_.area().host_calls;
    const std::uint32_t seen = calls.load();
    if (!run_due()) sluice::base::futex_wait(calls, seen, kSecond);
  }
}

}  // namespace sluice::simgpu
