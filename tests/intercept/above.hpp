#pragma once
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

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

  std::optional<Critical> low_;
};

}  // namespace sluice::intercept::test
