// A client on the recording driver. It attaches with a first launch, then obeys the lines of stdin.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "intercept/driver/entries.hpp"
#include "sluice/sluice.h"

namespace {

void launch() { ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); }

}  // namespace

int main() {
  launch();
  std::cout << (sluice_attached() != 0 ? "attached" : "not attached") << std::endl;
  for (std::string order; std::getline(std::cin, order);) {
    if (order == "exit") std::exit(0);
    if (order == "exec") execl("/bin/sleep", "sleep", "60", nullptr);
    if (order == "begin") sluice_job_begin(0);
    if (order == "announce") {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      sluice_job_announce(static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count()));
    }
    if (order == "launch-and-exit") {
      std::thread(launch).detach();
      std::this_thread::sleep_for(
          std::chrono::milliseconds(50));  // the gate holds the thread by now
      std::exit(0);
    }
    std::cout << "ok" << std::endl;
  }
  return 0;
}
