#pragma once
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {

/// This process is the critical one; another client is below it.
class Above : public Session {
 protected:
  void attach_above() {
    attach("gate", 5);
    // A program under test begins jobs explicitly.
    sluice_job_end(sluice_job_begin(0));
    low_.emplace(session_, 0);
  }
  shm::Slot& below() { return board().slots[static_cast<std::size_t>(low_->slot())]; }
  bool closed() { return below().gate.load() != 0; }

  /// Its folder in /proc; nothing if it was not started.
  static std::optional<std::filesystem::path> notice_thread() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(task.path() / "comm");
      std::string name;
      if (std::getline(file, name) && name == "sluice-announce") return task.path();
    }
    return std::nullopt;
  }

  /// Announces a job that starts after `ahead_ns`, and waits until the gate below is closed. On a
  /// machine that stands still for that long, an announcement lapses before anybody has looked at
  /// it: then there is another one. Returns the last one, which may have lapsed meanwhile.
  std::uint64_t announce_until_closed(std::uint64_t ahead_ns = 0) {
    std::uint64_t announced = 0;
    EXPECT_TRUE(eventually(
        [&] {
          sluice_job_cancel(announced);
          const std::uint64_t lapse = base::monotonic_ns() + ahead_ns + kLapse;
          announced = sluice_job_announce(lapse - kLapse);
          while (!closed() && base::monotonic_ns() < lapse) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
          return closed();
        },
        sluice::test::kProgramPatience))
        << "not closed for an announced job";
    return announced;
  }

  /// The same, until one for which gates were closed has lapsed.
  void announce_until_one_lapses() {
    const std::uint64_t job = slot().job.load();
    const auto lapsed = [&] { return slot().job.load() >= job + 2; };
    EXPECT_TRUE(eventually(
        [&] {
          sluice_job_announce(base::monotonic_ns() + 2 * kMs);
          return eventually(lapsed, std::chrono::milliseconds(100));
        },
        sluice::test::kProgramPatience))
        << "no announced job lapses";
  }

  /// How long after its start an announced job lapses.
  static constexpr std::uint64_t kLapse = 10 * kMs;

  std::optional<Critical> low_;
};

}  // namespace sluice::intercept::test
