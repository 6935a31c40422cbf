// sluice-simgpu: the simulated GPU of one session, or of one folder. The first client starts it
// with the listening socket as descriptor 3. Users do not start it.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "simgpu/gpu/server.hpp"
#include "simgpu/gpu/wake_promptly.hpp"

namespace {

volatile std::sig_atomic_t stop_requested = 0;

double number_from(const char* variable, double otherwise, double least, double most) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == 0) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return *end == 0 ? std::clamp(value, least, most) : otherwise;
}

// Returns true in the process that continues.
bool become_daemon() {
  if (fork() != 0) return false;
  setsid();
  if (fork() != 0) return false;
  return chdir("/") == 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kListener = 3;
  if (argc != 2 || fcntl(kListener, F_GETFD) < 0) {
    std::fputs("sluice-simgpu: started by the simulated libcuda.so.1, not by hand\n", stderr);
    return 2;
  }
  const char* log_path = std::getenv("SLUICE_SIM_LOG");
  sluice::simgpu::EventLog log =
      log_path != nullptr ? sluice::simgpu::EventLog(log_path) : sluice::simgpu::EventLog();
  if (!become_daemon()) return 0;
  sluice::simgpu::wake_promptly();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  fcntl(kListener, F_SETFD, FD_CLOEXEC);
  fcntl(kListener, F_SETFL, O_NONBLOCK);
  listen(kListener,
         128);  // a second time, so that SO_PEERCRED names this process instead of the starter
  sluice::simgpu::survive_truncated_files();

  const double scale = number_from("SLUICE_SIM_SCALE", 10, 0.1, 10'000);
  const auto devices = static_cast<unsigned>(number_from("SLUICE_SIM_DEVICES", 1, 1, 16));
  constexpr double kMiB = 1'048'576;
  constexpr double kH200Mib = 143'771;
  const double memory_mib = number_from("SLUICE_SIM_MEMORY_MIB", kH200Mib, 1, kH200Mib);
  sluice::simgpu::Server server(sluice::base::Fd(kListener),
                                sluice::simgpu::Place::of_environment(), argv[1],
                                sluice::simgpu::Simulation(scale, devices, std::move(log)),
                                static_cast<std::uint64_t>(memory_mib * kMiB));
  server.run(stop_requested);
}
