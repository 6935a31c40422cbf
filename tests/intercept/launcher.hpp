#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {

/// Long enough for an ungated launch to happen; waited for in full only when nothing must happen.
inline constexpr std::chrono::milliseconds kInVain{60};

/// Launches on a thread of its own, one after the other, as a program does.
class Launcher {
 public:
  Launcher(int launches, CUstream stream)
      : thread_([this, launches, stream] {
          for (int i = 0; i < launches; ++i) {
            ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
            ++done_;
          }
        }) {}
  ~Launcher() { thread_.join(); }
  [[nodiscard]] int done() const { return done_.load(); }
  /// Whether exactly `launches` launches get through.
  bool stops_after(int launches) const {
    if (!eventually([&] { return done() >= launches; })) return false;
    std::this_thread::sleep_for(kInVain);
    return done() == launches;
  }

 private:
  std::atomic<int> done_{0};
  std::thread thread_;
};

}  // namespace sluice::intercept::test
