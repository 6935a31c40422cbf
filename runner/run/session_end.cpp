#include "runner/run/session_end.hpp"

#include <chrono>
#include <filesystem>
#include <thread>

#include "shm/session.hpp"

namespace sluice::runner {

std::vector<std::string> wait_for_session_end(const std::string& session, double limit_s) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(limit_s);
  const std::vector<std::string> files{"/dev/shm/" + shm::board_name(session),
                                       shm::socket_path(session),
                                       base::runtime_dir() + "/" + session + ".simgpu"};
  for (;;) {
    std::vector<std::string> left;
    for (const std::string& path : files) {
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) left.push_back(path);
    }
    if (left.empty() || Clock::now() >= deadline) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace sluice::runner
